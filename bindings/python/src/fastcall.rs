//! `Keyed.check` in CPython's calling convention for methods that are called often, `METH_FASTCALL`: arguments stay where
//! the interpreter has them, and no tuple is made of them, which takes about as long as a decision.
//!
//! Every CPython since 3.7 has this convention, but it is part of the stable ABI only since 3.10, so PyO3 does not use it
//! in an extension that supports 3.9. What is unusual about a call, and every mistake, is left to the method that PyO3
//! made: both decide alike, and its errors are the only ones.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple, PyType};
use pyo3::{Borrowed, ffi};

use crate::cost::Cost;
use crate::keyed::Keyed;
use crate::text::utf8;

/// Python.h has it for every version; PyO3 does not for the stable ABI of 3.9.
const METH_FASTCALL: c_int = 0x0080;

/// A function of that convention: the receiver, positional arguments and then the values of keyword arguments, the number
/// of positional ones, and the names of the others.
type Function = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The method that PyO3 made.
static GENERAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Replaces `Keyed.check`. Called once, when the module is made.
pub(crate) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    GENERAL.get_or_try_init(py, || class.getattr("check").map(Bound::unbind))?;
    // SAFETY: with these flags the interpreter calls it as what it is.
    let function = unsafe { std::mem::transmute::<Function, ffi::PyCFunctionWithKeywords>(check) };
    // The interpreter keeps a reference for as long as it runs.
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"check".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionWithKeywords: function },
        ml_flags: METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: c"check($self, key, cost=1)\n--\n\nDecides a request; cost 0 peeks.".as_ptr(),
    }));
    // SAFETY: a class, and a definition that stays.
    let method = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), method))? };
    class.setattr("check", method)
}

/// `Keyed.check(key, cost=1)`.
unsafe extern "C" fn check(
    keyed: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let decided = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the interpreter calls it, with a receiver that it has checked and with arguments that outlive the call.
        let call = unsafe { Call::new(Python::assume_attached(), keyed, arguments, positional, names) };
        call.decide().unwrap_or_else(|| call.decide_generally())
    }));
    decided.unwrap_or_else(|_| {
        // SAFETY: as above. To attach again would wait forever in a subinterpreter.
        let py = unsafe { Python::assume_attached() };
        returned(py, Err(PyRuntimeError::new_err("the limiter panicked; please report it")))
    })
}

/// A call of the method.
struct Call<'a, 'py> {
    keyed: Borrowed<'a, 'py, Keyed>,
    positional: &'a [*mut ffi::PyObject],
    named: &'a [*mut ffi::PyObject],
    names: Option<Borrowed<'a, 'py, PyTuple>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// # Safety
    /// What the interpreter passes to a [`Function`] that is a method of `Keyed`.
    unsafe fn new(
        py: Python<'py>,
        keyed: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        positional: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Call<'a, 'py> {
        // SAFETY: by the contract of this function. Without arguments there may be no pointer.
        unsafe {
            let names = (!names.is_null()).then(|| Borrowed::from_ptr(py, names).cast_unchecked::<PyTuple>());
            let (positional, named) = (positional as usize, names.map_or(0, |names| names.len()));
            let all = match arguments.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(arguments, positional + named),
            };
            let (positional, named) = all.split_at(positional.min(all.len()));
            Call { keyed: Borrowed::from_ptr(py, keyed).cast_unchecked(), positional, named, names }
        }
    }

    /// Decides, for a key that is a `str` and a valid cost.
    #[inline]
    fn decide(&self) -> Option<*mut ffi::PyObject> {
        let cost = match (self.positional, self.names) {
            ([_], None) => Cost::ONE,
            ([_, cost], None) => self.cost(*cost)?,
            ([_], Some(names)) if is_cost(&names) => self.cost(self.named[0])?,
            _ => return None,
        };
        let key = self.argument(self.positional[0]).cast::<PyString>().ok()?;
        let key = utf8(&key).ok()?;
        let decision = self.keyed.get().decide(&key, cost);
        Some(returned(self.keyed.py(), Bound::new(self.keyed.py(), decision).map(Bound::into_any)))
    }

    /// A cost that is an `int`. Others may run code of the caller, which is for the general method alone: it must not run twice.
    fn cost(&self, cost: *mut ffi::PyObject) -> Option<Cost> {
        self.argument(cost).cast::<PyInt>().ok()?.extract().ok()
    }

    #[cold]
    fn decide_generally(&self) -> *mut ffi::PyObject {
        returned(self.keyed.py(), self.call())
    }

    fn call(&self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.keyed.py();
        // SAFETY: arguments of the call.
        let owned = |argument: &*mut ffi::PyObject| unsafe { Bound::from_borrowed_ptr(py, *argument) };
        let receiver = [self.keyed.as_ptr()];
        let positional: Vec<_> = receiver.iter().chain(self.positional).map(owned).collect();
        let named = PyDict::new(py);
        for (name, value) in self.names.iter().flat_map(|names| names.iter()).zip(self.named) {
            named.set_item(name, owned(value))?;
        }
        let general = GENERAL.get(py).ok_or_else(|| PyRuntimeError::new_err("the module is not initialized"))?;
        general.bind(py).call(PyTuple::new(py, positional)?, Some(&named))
    }

    fn argument(&self, argument: *mut ffi::PyObject) -> Borrowed<'a, 'py, PyAny> {
        // SAFETY: arguments outlive the call.
        unsafe { Borrowed::from_ptr(self.keyed.py(), argument) }
    }
}

/// Whether the only name is that of the cost.
fn is_cost(names: &Bound<'_, PyTuple>) -> bool {
    names.len() == 1 && names.get_item(0).is_ok_and(|name| name.cast::<PyString>().is_ok_and(|name| name == "cost"))
}

/// A result as the interpreter expects it: an object, or none and an exception that is set.
fn returned(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            null_mut()
        }
    }
}
