# A parser before 4.0 does not know the rule `userns`, and AppArmor's service would report this file at every start.
profile=/etc/apparmor.d/lazaret-executor
shipped=/usr/share/lazaret/apparmor
if command -v apparmor_parser >/dev/null && apparmor_parser --skip-kernel-load --skip-cache "$shipped" >/dev/null 2>&1; then
  install -m 644 "$shipped" "$profile"
  if [ -e /sys/kernel/security/apparmor/profiles ]; then
    apparmor_parser --replace --skip-cache "$profile" || echo "lazaret: $profile could not be loaded; sessions are flat until it is" >&2
  fi
else
  rm -f "$profile"
fi
