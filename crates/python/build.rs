fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    // This crate's tests are programs that hold an interpreter. They find its library where it is.
    if let Some(directory) = &pyo3_build_config::get().lib_dir {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
