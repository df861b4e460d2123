archive=lazaret-$VERSION-$ARCH-linux
bin="$home/my programs/lazaret/bin"

install() {
  mkdir "$home/my programs" "$home/links"
  chown 1500:1500 "$home/my programs" "$home/links"
  bin=$system as_user tar -xzf "/packages/$archive.tar.gz" -C "$home"
  # It works wherever it is moved, and by a link.
  bin=$system as_user mv "$home/$archive" "$home/my programs/lazaret"
  bin=$system as_user ln -s "$bin/lazaret" "$home/links/lazaret"
  bin="$home/links" as_user lazaret run -- true || fail "by a link"
}

check_modes() {
  [ -z "$(find "$home/my programs" -perm /6022)" ] || fail "files for others to write"
}

upgrade() {
  bin=$system as_user tar -xzf "/packages/$archive.tar.gz" -C "$home/my programs/lazaret" --strip-components=1
}

remove() {
  rm -r "$home/my programs" "$home/links"
}
