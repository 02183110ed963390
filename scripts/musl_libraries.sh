# The libraries that CPython wants, for musl: zlib, libffi, OpenSSL and SQLite out of Debian's
# source packages, for scripts/get-pythons. zig compiles them, as position-independent archives,
# into $pythons/musl, which also has the compiler cc and the tools ar and ranlib.

make_musl_compiler() {
    local folder=$pythons/musl zig target tool
    # Not python-zig, which starts a Python for each file.
    zig=$("$scripts/../.venvs/tools/bin/python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
    target=$(uname -m)-linux-musl
    mkdir -p "$folder/lib" "$folder/include"
    # CPython's configure asks for the name of the platform, which is in the names of extension
    # modules. It recognizes musl by the musl header <stdarg.h>, in place of which zig has clang's.
    cat >"$folder/cc" <<-SCRIPT
	#!/bin/sh
	case " \$* " in
	    " --print-multiarch ") echo $target; exit ;;
	    *"/platform_triplet.c "*) set -- -D__DEFINED_va_list "\$@" ;;
	esac
	exec "$zig" cc -target $target -dynamic "\$@"
	SCRIPT
    for tool in ar ranlib; do
        printf '#!/bin/sh\nexec %q %s "$@"\n' "$zig" "$tool" >"$folder/$tool"
    done
    chmod +x "$folder/cc" "$folder/ar" "$folder/ranlib"
}

# Builds those that are missing.
build_musl_libraries() {
    local folder=$pythons/musl log=$pythons/musl.log name archive
    make_musl_compiler
    for name in zlib libffi openssl sqlite3; do
        case $name in
            zlib) archive=libz.a ;;
            libffi) archive=libffi.a ;;
            openssl) archive=libssl.a ;;
            sqlite3) archive=libsqlite3.a ;;
        esac
        [ ! -e "$folder/lib/$archive" ] || continue
        say "$version: building $name for musl ($log)"
        unpack_musl_source "$name"
        (
            cd "$source"
            export CC="$folder/cc" AR="$folder/ar" RANLIB="$folder/ranlib" CFLAGS='-O2 -fPIC -fno-sanitize=all'
            "build_$name" "$folder"
        ) >"$log" 2>&1 || fail "the build of $name for musl failed: see $log"
        [ -e "$folder/lib/$archive" ] || fail "the build of $name for musl left no $archive: see $log"
        rm -rf "$source"
    done
}

# Sets $source. A mirror may list files that it does not have; of the package only the archive of
# the authors is needed, whose hash apt-get checks.
unpack_musl_source() {  # NAME
    local suite archive=
    source=$(mktemp -d "$pythons/new.XXXXXX")
    for suite in trixie bookworm; do
        list_suite "$suite"
        (cd "$source" && suite_apt "$suite" source --download-only "$1" >/dev/null 2>&1) || true
        archive=$(ls "$source"/"$1"_*.orig.tar.[gx]z 2>/dev/null) && break
    done
    [ -n "$archive" ] || fail "$version: the source package $1 of Debian trixie and bookworm cannot be had"
    tar -xf "$archive" -C "$source" --strip-components=1 ||
        fail "the source package $1 has another form than expected"
}

build_zlib() { ./configure --static --prefix="$1" && make -j "$(nproc)" libz.a && make install; }

build_libffi() {
    # The tarball of a repository has no configure.
    [ -x configure ] || autoreconf --force --install
    ./configure --quiet --prefix="$1" --libdir="$1/lib" --disable-shared --enable-static --disable-docs --disable-multi-os-directory \
        --build="$(uname -m)-linux-musl" && make -j "$(nproc)" && make install
}

build_openssl() {
    ./Configure "linux-$(uname -m)" --prefix="$1" --openssldir=/etc/ssl --libdir=lib no-shared no-tests &&
        make -j "$(nproc)" build_libs && make install_dev
}

# The sources become one file, for which tclsh is needed.
build_sqlite3() {
    ./configure --quiet --disable-shared --disable-readline CC=cc CFLAGS=-O1 && make sqlite3.c &&
        "$CC" $CFLAGS -DSQLITE_ENABLE_COLUMN_METADATA -c sqlite3.c -o sqlite3.o && "$AR" rcs "$1/lib/libsqlite3.a" sqlite3.o &&
        cp sqlite3.h sqlite3ext.h "$1/include" &&
        printf 'prefix=%s\nName: SQLite\nDescription: SQL\nVersion: %s\nLibs: -L%s/lib -lsqlite3\nCflags: -I%s/include\n' \
            "$1" "$(cat VERSION)" "$1" "$1" >"$1/lib/pkgconfig/sqlite3.pc"
}
