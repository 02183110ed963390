# How others build CPython: for each name the options of configure, for scripts/get-pythons.
#
# build_like NAME PREFIX sets `options`, and `need`, Debian's packages besides the usual ones.
# Profile-guided builds are trained by four of CPython's tests instead of all, which takes a minute
# instead of ten. What is linked, and how, is the same.

python_builds=(docker fedora conda standalone now no-plt musl)

build_like() {  # NAME PREFIX
    local prefix=$2 zig
    options=() need=()
    case $1 in
        # The official Docker image: a shared library, optimized by profile and at link time.
        docker)
            options=(--enable-shared --enable-optimizations --with-lto
                PROFILE_TASK='-m test --pgo test_array test_json test_struct test_threading'
                CFLAGS='-fstack-protector-strong -D_FORTIFY_SOURCE=2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer'
                LDFLAGS="-Wl,--strip-all -Wl,-rpath,$prefix/lib")
            ;;
        # Fedora and RHEL: a shared library that calls its own functions directly. Without their LTO,
        # which the build before this one has.
        fedora)
            options=(--enable-shared
                CFLAGS='-O2 -fexceptions -fstack-protector-strong -fstack-clash-protection -fcf-protection -fno-semantic-interposition'
                LDFLAGS="-fno-semantic-interposition -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -Wl,-rpath,$prefix/lib")
            ;;
        # conda-forge: libpython inside the executable, without a procedure linkage table.
        conda)
            options=(--with-lto
                CFLAGS='-march=nocona -mtune=haswell -ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O3 -ffunction-sections -fno-semantic-interposition'
                LDFLAGS='-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags -Wl,--gc-sections')
            ;;
        # python-build-standalone (uv, Rye, Bazel): clang and lld, an old glibc, libpython inside the
        # executable. There are no libraries for that glibc here, and so no ssl, zlib and ctypes.
        standalone)
            zig="$scripts/../.venvs/tools/bin/python-zig"
            options=(CC="$zig cc -target $(uname -m)-linux-gnu.2.17" AR="$zig ar" RANLIB="$zig ranlib"
                CFLAGS='-O3 -fPIC -fno-semantic-interposition -fno-sanitize=all -Wno-date-time'
                PKG_CONFIG=false
                --build="$(uname -m)-linux-gnu")
            ;;
        # Every function is looked up when the program starts.
        now) options=(LDFLAGS='-Wl,-z,relro -Wl,-z,now') ;;
        # Functions of other libraries are called through their address, without a linkage table.
        no-plt) options=(CFLAGS='-fno-plt') ;;
        # Alpine's C library. The stack of threads is Alpine's and Docker's: musl's own 128 KiB are
        # too small for CPython. musl_libraries.sh builds the libraries.
        musl)
            need=(musl tcl autoconf automake libtool libltdl-dev)
            # zig's musl has functions that Debian 12's does not have.
            options=(CC="$pythons/musl/cc" AR="$pythons/musl/ar" RANLIB="$pythons/musl/ranlib"
                ac_cv_func_preadv2=no ac_cv_func_pwritev2=no
                CFLAGS='-fno-sanitize=all -Wno-date-time -DTHREAD_STACK_SIZE=0x100000'
                CPPFLAGS="-I$pythons/musl/include" LDFLAGS="-L$pythons/musl/lib"
                PKG_CONFIG_LIBDIR="$pythons/musl/lib/pkgconfig" PKG_CONFIG_PATH=
                --with-openssl="$pythons/musl" --build="$(uname -m)-linux-musl")
            ;;
    esac
}
