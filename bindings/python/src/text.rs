//! Python strings as UTF-8, without a copy if possible.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// The text of a Python string.
#[cfg(not(windows))]
pub(crate) fn utf8<'s>(text: &'s Bound<'_, PyString>) -> PyResult<Cow<'s, str>> {
    // Every Python since 3.3 has this function. It is part of the stable ABI only since 3.10, so PyO3 does not offer
    // it to an extension that supports 3.9, and copies every string twice instead. On Windows the linker would not
    // find it.
    unsafe extern "C" {
        fn PyUnicode_AsUTF8AndSize(
            unicode: *mut pyo3::ffi::PyObject,
            size: *mut pyo3::ffi::Py_ssize_t,
        ) -> *const std::ffi::c_char;
    }
    let mut size = 0;
    // SAFETY: the object is a string; the returned buffer is UTF-8 and lives as long as the string.
    unsafe {
        let start = PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut size);
        if start.is_null() {
            return Err(PyErr::fetch(text.py()));
        }
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), size as usize);
        Ok(Cow::Borrowed(std::str::from_utf8_unchecked(bytes)))
    }
}

/// The text of a Python string.
#[cfg(windows)]
pub(crate) fn utf8<'s>(text: &'s Bound<'_, PyString>) -> PyResult<Cow<'s, str>> {
    text.to_cow()
}
