use pyo3_ffi::PyMethodDef;

pub struct Methods<const N: usize>(pub [PyMethodDef; N]);
// SAFETY: constant data.
unsafe impl<const N: usize> Sync for Methods<N> {}

static METHODS: Methods<1> = Methods([PyMethodDef::zeroed()]);

pub fn methods() -> *mut PyMethodDef {
    METHODS.0.as_ptr().cast_mut()
}
