# A system with musl, for scripts/clean-roots and scripts/test-musl, which call it in the folder of
# the sources: busybox, bash, and the CPython of `scripts/get-pythons 3.13-musl`.

# busybox and bash are static: of the C library there is musl alone.
make_musl_root() {  # ROOT
    local root=$1 python=${HEADWAY_PYTHONS:-${XDG_CACHE_HOME:-$HOME/.cache}/headway/pythons}/3.13-musl
    [ -x "$python/bin/python3.13-musl" ] || scripts/get-pythons 3.13-musl
    mkdir -p "$root"/{bin,etc,lib,proc,dev,root,run,tmp,usr/local,archives}
    (cd "$root/archives" && apt-get -qq -o APT::Sandbox::User=root download busybox-static bash-static) || fail "apt-get could not download busybox-static and bash-static"
    for archive in "$root"/archives/*.deb; do
        dpkg --fsys-tarfile "$archive" | tar -x -C "$root" ./bin
    done
    rm -r "$root/archives"
    mv "$root/bin/bash-static" "$root/bin/bash"
    "$root/bin/busybox" --install -s "$root/bin"
    for applet in "$root"/bin/*; do
        [ ! -L "$applet" ] || ln -sf busybox "$applet"
    done
    cp /lib/ld-musl-"$(uname -m)".so.1 "$root/lib/"
    cp -r "$python"/bin "$python"/lib "$root/usr/local/"
    ln -s ../bin "$root/usr/bin"
    mknod -m 666 "$root/dev/null" c 1 3
    mknod -m 666 "$root/dev/urandom" c 1 9
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    printf '%s\n' root:x:0:0::/root:/bin/sh nobody:x:65534:65534::/:/bin/false >"$root/etc/passwd"
    printf '%s\n' root:x:0: daemon:x:2: nobody:x:65534: >"$root/etc/group"
    echo 'PRETTY_NAME="busybox and musl"' >"$root/etc/os-release"
}
