"""The partner's service over HTTP: how it is asked, who asks, and one method per endpoint of interface.md 4."""
