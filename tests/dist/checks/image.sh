# The image as its engine has it, without what a container restricts: flat sessions are tried by an engine. It is not upgraded: another takes its place.
travel() {
  make_user
  check_version
  check_use namespaced
  check_attack
  step "git works in a cell"
  as_user git init -q . && as_user lazaret run -- git status >/dev/null || fail "git"
  contains "$(head -n 1 /etc/lazaret/policy.toml)" administrator
}

as_user() {
  (cd "$project" && exec /usr/sbin/chroot --userspec=1000:1000 --skip-chdir / /usr/bin/env -i HOME="$home" USER=lazaret PATH=/usr/bin LANG=C.UTF-8 "$@")
}

home=/home/lazaret
project=/work/project

make_user() {
  mkdir -p "$project" "$home/.ssh"
  echo secret >"$home/.ssh/id_ed25519"
  echo 'fn main() {}' >"$project/main.rs"
  chown -R 1000:1000 "$project" "$home"
}
