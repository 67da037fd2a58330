"""One module per outside thing (S3, the local directory, gpg); each turns foreign errors into ours."""
