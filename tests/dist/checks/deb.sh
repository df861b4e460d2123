package=/packages/lazaret_${VERSION}_$DEBIAN_ARCH.deb
export DEBIAN_FRONTEND=noninteractive
profile=/etc/apparmor.d/lazaret-executor

knows_userns() {
  command -v apparmor_parser >/dev/null && [ -e /etc/apparmor.d/abi/4.0 ]
}

install() {
  dpkg --install "$package" >/dev/null
  dpkg --verify lazaret
  if knows_userns; then
    step "the profile for AppArmor is in force where its parser knows the rule"
    apparmor_parser --skip-kernel-load --skip-cache "$profile" 2>/dev/null || fail "it is not valid"
  else
    [ ! -e "$profile" ] || fail "a profile that this parser does not know"
  fi
  [ -s /usr/share/man/man1/lazaret-mcp-add.1 ] || grep -q path-exclude /etc/dpkg/dpkg.cfg.d/* || fail "no manual page"
  step "each example of the administrator's policy is valid"
  cp /etc/lazaret/policy.toml /tmp/policy.toml
  sed -i 's/^#\([^ ]\)/\1/' /etc/lazaret/policy.toml
  as_user lazaret policy check >/tmp/policy.log 2>&1 || fail "$(cat /tmp/policy.log)"
  cp /tmp/policy.toml /etc/lazaret/policy.toml
  echo '# of the administrator' >>/etc/lazaret/policy.toml
}

upgrade() {
  dpkg --install "$package" </dev/null >/dev/null
  contains "$(cat /etc/lazaret/policy.toml)" '# of the administrator'
}

remove() {
  dpkg --remove lazaret >/dev/null
  [ -e /etc/lazaret/policy.toml ] || fail "the administrator's settings went with the package"
  [ ! -e "$profile" ] || fail "the profile stayed"
  dpkg --purge lazaret >/dev/null
}
