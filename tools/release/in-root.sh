#!/bin/sh
# in-root.sh ROOT ARGS...: runs tandem ARGS with ROOT as its file system. ARGS name files in ROOT by their paths outside.
root=$1
shift
for arg; do
	shift
	case $arg in "$root"/*) arg=${arg#"$root"} ;; esac
	set -- "$@" "$arg"
done
exec chroot "$root" /usr/bin/tandem "$@"
