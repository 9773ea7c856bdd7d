#!/bin/sh
# in-root.sh ROOT ARGS...: tandem ARGS in a file system of its own, which holds the files that are named by their paths outside of it.
root=$1
shift
for arg; do
	shift
	case $arg in "$root"/*) arg=${arg#"$root"} ;; esac
	set -- "$@" "$arg"
done
exec chroot "$root" /usr/bin/tandem "$@"
