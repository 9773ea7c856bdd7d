#!/bin/sh
# Prints the SemVer version of this checkout. At a tag vX.Y.Z it is the tag. Elsewhere it is a pre-release of the next version: v0.1.0-dev.N+gHASH.
# N counts the commits since the last tag, so a later commit has a higher version. Uncommitted changes append ".dirty". Without git: v0.0.0-dev.
set -eu
cd "$(dirname "$0")/.."
hash=$(git rev-parse --short HEAD 2>/dev/null) || { echo v0.0.0-dev; exit; }
dirty=
[ -z "$(git status --porcelain --untracked-files=no)" ] || dirty=.dirty
tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)
if [ -z "$tag" ]; then
	next=v0.1.0-dev count=$(git rev-list --count HEAD)
else
	count=$(git rev-list --count "$tag"..HEAD)
	[ "$count$dirty" != 0 ] || { echo "$tag"; exit; }
	case $tag in
	*-*) next=$tag.dev ;; # sorts after v0.2.0-rc.1 and before v0.2.0-rc.2
	*) next=${tag%.*}.$((${tag##*.} + 1))-dev ;;
	esac
fi
echo "$next.$count+g$hash$dirty"
