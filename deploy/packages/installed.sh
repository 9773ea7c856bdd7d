#!/bin/sh
# Lets systemd read the unit, and says what comes next after the first installation (dpkg: no version before, rpm: 1). An upgrade restarts nothing.
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
case "${1:-} ${2:-}" in
"configure " | "1 ")
	cat <<'EOF'
tandem is installed. Next:
  1. put your engines into /etc/tandem/tandem.yaml   (man 5 tandem.yaml)
  2. tandem doctor --config /etc/tandem/tandem.yaml  (asks the engines; says which flag is wrong)
  3. systemctl enable --now tandem                   (at night: /usr/share/doc/tandem/runbook.md)
EOF
	;;
esac
