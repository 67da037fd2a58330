#!/bin/sh
# The bare shell, with no check at all: cut the extract every 1000 lines, encrypt each piece.
# Usage: shell.sh PUBLIC-KEY EXTRACT FOLDER, which must not be there yet.
set -e
mkdir "$3"
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'rm -rf "$GNUPGHOME"' EXIT
gpg --batch --quiet --no-tty --import "$1"
recipient=$(gpg --batch --list-keys --with-colons | awk -F: '/^fpr/ { print $10; exit }')
split -l 1000 "$2" "$3/chunk-"
for chunk in "$3"/chunk-*; do
    gpg --batch --quiet --no-tty --trust-model always --recipient "$recipient" --encrypt "$chunk"
done
