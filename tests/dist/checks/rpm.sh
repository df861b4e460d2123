package=/packages/lazaret-$VERSION-1.$ARCH.rpm
# A list of RPM's own, in which nothing is installed: on Debian no package of its provides the C library.
database=/tmp/rpm

rpm_here() { rpm --dbpath "$database" --nodeps "$@"; }

install() {
  rpm_here --install "$package"
  rpm --dbpath "$database" --verify --nodeps lazaret
  echo '# of the administrator' >>/etc/lazaret/policy.toml
}

upgrade() {
  rpm_here --upgrade --replacepkgs "$package"
  contains "$(cat /etc/lazaret/policy.toml)" '# of the administrator'
}

remove() {
  rpm_here --erase lazaret
  # RPM saves changed settings.
  [ -e /etc/lazaret/policy.toml.rpmsave ] || fail "the administrator's settings went with the package"
  rm -r /etc/lazaret
}
