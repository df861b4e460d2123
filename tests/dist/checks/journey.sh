# What is done with every package. Before, check.sh says how it is installed, upgraded and removed, and where its programs are:
# install, upgrade, remove, and `bin`, their directory. It may replace any other function.

home=/home/tester
project="$home/a project"
bin=/usr/bin
system=/usr/local/bin:/usr/bin:/bin

step() { printf '  %s\n' "$*"; }

fail() {
  printf '  FAILED: %s\n' "$*" >&2
  exit 1
}

as_user() {
  (cd "$project" && exec setpriv --reuid 1500 --regid 1500 --clear-groups env -i HOME="$home" USER=tester PATH="$bin:$system" LANG=C.UTF-8 "$@")
}

# $1 has to contain $2.
contains() {
  case "$1" in
  *"$2"*) ;;
  *) fail "expected “$2” in: $1" ;;
  esac
}

make_user() {
  echo 'tester:x:1500:1500::/home/tester:/bin/bash' >>/etc/passwd
  echo 'tester:x:1500:' >>/etc/group
  mkdir -p "$project" "$home/.ssh"
  echo secret >"$home/.ssh/id_ed25519"
  echo 'fn main() {}' >"$project/main.rs"
  chown -R 1500:1500 "$home"
}

# Whatever an installation needs.
prepare() { :; }

# What is installed, as far as the package is to take it away again: every file, and directories of our name. Package managers have
# their own lists and logs; what a user's sessions record is the user's.
installed() {
  find /upper "$home" \( -path /upper/var/lib/dpkg -o -path /upper/var/log -o -path /upper/var/cache \
    -o -path "$home/.local/share/lazaret" -o -path "$home/.local/state/lazaret" -o -path "$home/.cache" -o -path "$home/.npm" \
    -o -path "$home/lazaret" -o -name __pycache__ \) -prune \
    -o \( ! -type d -o -name '*lazaret*' \) -printf '%p %y %m\n' | sort
}

check_modes() {
  step "no file is of others, for others to write, or setuid"
  local wrong
  wrong=$(find /upper/usr /upper/etc -cnewer /tmp/before ! -type l \( ! -user root -o -perm /6022 \) ! -path '*/alternatives*' 2>/dev/null || true)
  [ -z "$wrong" ] || fail "$wrong"
}

check_version() {
  contains "$(as_user "$bin/lazaret" --version)" 'protocol '
  contains "$(as_user "$bin/lazaret" --version)" "$VERSION"
}

# $1: the tier.
check_use() {
  step "doctor, and a command, in the $1 tier"
  local output
  output=$(as_user "$bin/lazaret" doctor 2>&1) || fail "doctor: $output"
  contains "$output" "$1"
  output=$(as_user "$bin/lazaret" run -- bash -c 'cat main.rs; cat /etc/shadow; cat ~/.ssh/id_ed25519; true' 2>&1) || fail "run: $output"
  contains "$output" 'fn main'
  case "$output" in *root:* | *secret*) fail "a command read what it may not: $output" ;; esac
}

check_attack() {
  step "doctor --attack"
  local output
  output=$(as_user "$bin/lazaret" doctor --attack 2>&1) || fail "$output"
  contains "$output" 'The cell holds'
}

check_chat() {
  step "chat with a scripted model"
  local output
  output=$(as_user "$bin/lazaret" chat --provider mock 'Show me around' </dev/null 2>&1) || fail "$output"
  contains "$output" 'That was the tour'
}

# The kernel refuses user namespaces below a chroot.
check_flat() {
  mkdir -p /flat
  mount --rbind / /flat
  (
    as_user() { chroot /flat setpriv --reuid 1500 --regid 1500 --clear-groups env -i HOME="$home" USER=tester PATH="$bin:$system" bash -c 'cd "$0" && exec "$@"' "$project" "$@"; }
    check_use flat
  )
  umount -l /flat
  rmdir /flat
}

# Programs of our names in the project, and the project first in PATH.
check_impostors() {
  step "a project with programs of our names"
  local name
  for name in lazaret-executor lazaret-worker lazaret-gateway lazaret-trace lazaret-attack; do
    printf '#!/bin/sh\ntouch %s/sprung\n' "$home" >"$project/$name"
    chmod 755 "$project/$name"
  done
  mkdir -p "$project/libexec/lazaret"
  cp "$project/lazaret-executor" "$project/libexec/lazaret/"
  # The control: such a program does leave its mark where it is started.
  as_user ./lazaret-executor
  [ -e "$home/sprung" ] || fail "the control does not work"
  rm "$home/sprung"
  as_user env PATH=".:./libexec/lazaret:$bin:$system" "$bin/lazaret" run -- true || fail "run"
  [ ! -e "$home/sprung" ] || fail "a program of the project was started as ours"
  rm -r "$project/libexec" "$project"/lazaret-*
}

open_session() {
  coproc session { as_user "$bin/lazaret" session --trust autonomous; }
  session_input=${session[1]} session_output=${session[0]} session_id=$session_PID
  local line
  IFS= read -r -t 30 line <&"$session_output" || fail "no session"
  contains "$line" '"event":"ready"'
}

# Runs command $1 in the open session, and writes a file by the file worker.
call() {
  local line tool
  for tool in '"bash","input":{"command":"'"$1"'"}' '"file_write","input":{"path":"written.txt","content":"'"$1"'"}'; do
    printf '{"op":"call","id":1,"tool":%s}\n' "$tool" >&"$session_input"
    while IFS= read -r -t 30 line <&"$session_output" || fail "no answer in the session"; do
      case "$line" in *'"event":"result"'*) break ;; esac
    done
    contains "$line" '"status":"success"'
  done
  contains "$(cat "$project/written.txt")" "$1"
}

close_session() {
  exec {session_input}>&-
  wait "$session_id" || fail "the session ended with $?"
}

travel() {
  make_user
  prepare
  installed >/tmp/before
  step install
  install
  check_modes
  check_version
  check_use namespaced
  check_flat
  check_attack
  check_chat
  check_impostors
  step "upgrade, with a session open"
  open_session
  call 'echo one'
  upgrade
  call 'echo two'
  check_use namespaced
  step "remove, with a session open"
  remove
  call 'echo three'
  close_session
  [ ! -e "$bin/lazaret" ] || fail "lazaret is still there"
  rm -f "$project/written.txt"
  step "nothing is left"
  installed >/tmp/after
  diff /tmp/before /tmp/after || fail "the files above are left, or missing"
}
