//! Functions that are called for every request. They carry their data with them and read arguments in place: the methods
//! that `napi-derive` generates check the type of their receiver and track borrows, which costs more than a decision.

use std::ffi::c_void;
use std::ptr::null_mut;

use napi::bindgen_prelude::ToNapiValue;
use napi::{JsError, sys};

use crate::errors::Raised;

/// What a function does. It is called on the thread of the environment that created it.
pub trait Callee: Sized + 'static {
    /// The name of the function.
    const NAME: &'static str;

    /// Runs with these arguments; returns a value of the same environment.
    fn call(&self, arguments: &Arguments) -> Result<sys::napi_value, Raised>;
}

/// A JavaScript function over its own data, which is dropped when the function is collected.
pub struct Callable<C: Callee>(pub(crate) C);

impl<C: Callee> ToNapiValue for Callable<C> {
    unsafe fn to_napi_value(env: sys::napi_env, callable: Callable<C>) -> napi::Result<sys::napi_value> {
        let data: *mut C = Box::into_raw(Box::new(callable.0));
        let mut function = null_mut();
        // SAFETY: the environment that this was called in; the name outlives the call.
        let made = unsafe {
            let (name, length) = (C::NAME.as_ptr().cast(), C::NAME.len() as isize);
            match sys::napi_create_function(env, name, length, Some(run::<C>), data.cast(), &mut function) {
                sys::Status::napi_ok => {
                    sys::napi_add_finalizer(env, function, data.cast(), Some(free::<C>), null_mut(), null_mut())
                }
                failed => failed,
            }
        };
        if made != sys::Status::napi_ok {
            // SAFETY: no finalizer owns it, and a function that exists was not returned to anybody.
            drop(unsafe { Box::from_raw(data) });
        }
        napi::check_status!(made)?;
        Ok(function)
    }
}

unsafe extern "C" fn run<C: Callee>(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let mut values = [null_mut(); MOST];
    let (mut count, mut data) = (MOST, null_mut());
    // SAFETY: called by the runtime; `data` is what the function was created with. Missing arguments are undefined.
    let callee = unsafe {
        if sys::napi_get_cb_info(env, info, &mut count, values.as_mut_ptr(), null_mut(), &mut data)
            != sys::Status::napi_ok
        {
            return null_mut();
        }
        &*data.cast::<C>()
    };
    callee.call(&Arguments { env, values }).unwrap_or_else(|error| {
        // SAFETY: the environment that this was called in.
        unsafe { JsError::from(error).throw_into(env) };
        null_mut()
    })
}

unsafe extern "C" fn free<C: Callee>(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: created in `to_napi_value`, and called once.
    drop(unsafe { Box::from_raw(data.cast::<C>()) });
}

/// The most arguments that a function has.
const MOST: usize = 8;

/// The arguments of a call.
pub struct Arguments {
    pub(crate) env: sys::napi_env,
    values: [sys::napi_value; MOST],
}

impl Arguments {
    /// A string; nothing if it is undefined or null.
    pub(crate) fn text(&self, index: usize) -> Result<Option<Text>, Raised> {
        // Most are absent: that is cheaper to see than to fail to read.
        if self.is_absent(index) {
            return Ok(None);
        }
        Text::read(self.env, self.values[index]).map(Some).ok_or_else(|| wrong_type("a string"))
    }

    /// A string, if it is one.
    pub(crate) fn as_text(&self, index: usize) -> Option<Text> {
        Text::read(self.env, self.values[index])
    }

    /// A string of bytes, if it is a string: as Node passes them, one in each character.
    pub(crate) fn as_bytes(&self, index: usize) -> Option<Text> {
        Text::read_with(sys::napi_get_value_string_latin1, self.env, self.values[index])
    }

    /// A whole number.
    pub(crate) fn whole(&self, index: usize) -> Result<u32, Raised> {
        let mut number = 0;
        // SAFETY: a value of this environment.
        match unsafe { sys::napi_get_value_uint32(self.env, self.values[index], &mut number) } {
            sys::Status::napi_ok => Ok(number),
            _ => Err(wrong_type("a number")),
        }
    }

    /// A number.
    pub(crate) fn number(&self, index: usize) -> Result<f64, Raised> {
        let mut number = 0.0;
        // SAFETY: a value of this environment.
        match unsafe { sys::napi_get_value_double(self.env, self.values[index], &mut number) } {
            sys::Status::napi_ok => Ok(number),
            _ => Err(wrong_type("a number")),
        }
    }

    /// A list of names and values in turn; empty if it is undefined or null.
    pub(crate) fn pairs(&self, index: usize) -> Result<Vec<(String, String)>, Raised> {
        if self.is_absent(index) {
            return Ok(Vec::new());
        }
        (0..self.length(index)? / 2)
            .map(|pair| Ok((self.element(index, pair * 2)?, self.element(index, pair * 2 + 1)?)))
            .collect()
    }

    /// A list of strings; nothing if it is undefined or null.
    pub(crate) fn texts(&self, index: usize) -> Result<Option<Vec<String>>, Raised> {
        if self.is_absent(index) {
            return Ok(None);
        }
        (0..self.length(index)?).map(|at| self.element(index, at)).collect::<Result<_, _>>().map(Some)
    }

    fn length(&self, index: usize) -> Result<u32, Raised> {
        let mut length = 0;
        // SAFETY: a value of this environment.
        match unsafe { sys::napi_get_array_length(self.env, self.values[index], &mut length) } {
            sys::Status::napi_ok => Ok(length),
            _ => Err(wrong_type("a list")),
        }
    }

    fn element(&self, index: usize, at: u32) -> Result<String, Raised> {
        let mut value = null_mut();
        // SAFETY: an array of this environment.
        unsafe { sys::napi_get_element(self.env, self.values[index], at, &mut value) };
        Text::read(self.env, value).map(Text::into_string).ok_or_else(|| wrong_type("a list of strings"))
    }

    fn is_absent(&self, index: usize) -> bool {
        let mut kind = sys::ValueType::napi_undefined;
        // SAFETY: a value of this environment.
        unsafe { sys::napi_typeof(self.env, self.values[index], &mut kind) };
        kind == sys::ValueType::napi_undefined || kind == sys::ValueType::napi_null
    }
}

fn wrong_type(expected: &str) -> Raised {
    napi::Error::new("ERR_INVALID_ARG_TYPE", format!("expected {expected}"))
}

/// A string from JavaScript; short ones need no allocation.
pub(crate) struct Text {
    short: [u8; SHORT],
    length: usize,
    long: Option<Vec<u8>>,
}

/// A function of the runtime that reads a string.
type GetString =
    unsafe extern "C" fn(sys::napi_env, sys::napi_value, *mut std::ffi::c_char, usize, *mut usize) -> sys::napi_status;

const SHORT: usize = 128;
/// The most bytes of a character, and the zero at the end.
const LONGEST_CHARACTER: usize = 5;

impl Text {
    fn read(env: sys::napi_env, value: sys::napi_value) -> Option<Text> {
        Text::read_with(sys::napi_get_value_string_utf8, env, value)
    }

    fn read_with(get: GetString, env: sys::napi_env, value: sys::napi_value) -> Option<Text> {
        let mut text = Text { short: [0; SHORT], length: 0, long: None };
        let read = |into: &mut [u8], length: &mut usize| {
            // SAFETY: a value of this environment, and a buffer of this size.
            unsafe {
                let status = get(env, value, into.as_mut_ptr().cast(), into.len(), length);
                status == sys::Status::napi_ok
            }
        };
        if !read(&mut text.short, &mut text.length) {
            return None;
        }
        if text.length + LONGEST_CHARACTER > SHORT {
            let mut length = 0;
            // SAFETY: without a buffer it only measures.
            unsafe { get(env, value, null_mut(), 0, &mut length) };
            let mut long = vec![0; length + 1];
            if !read(&mut long, &mut length) {
                return None;
            }
            long.truncate(length);
            text.long = Some(long);
        }
        Some(text)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.long.as_deref().unwrap_or(&self.short[..self.length])
    }

    pub(crate) fn as_str(&self) -> &str {
        // The runtime replaces what is not valid.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub(crate) fn into_string(self) -> String {
        match self.long {
            Some(long) => String::from_utf8(long).unwrap_or_default(),
            None => self.as_str().to_string(),
        }
    }
}

/// A string for JavaScript. Plain ASCII is copied as it is.
pub(crate) fn string(env: sys::napi_env, text: &str) -> napi::Result<sys::napi_value> {
    let (start, length, mut value) = (text.as_ptr().cast(), text.len() as isize, null_mut());
    // SAFETY: the environment that this was called in, and a text of this length.
    napi::check_status!(unsafe {
        if text.is_ascii() {
            sys::napi_create_string_latin1(env, start, length, &mut value)
        } else {
            sys::napi_create_string_utf8(env, start, length, &mut value)
        }
    })?;
    Ok(value)
}

/// Bytes as a string of so many characters.
pub(crate) fn latin1_string(env: sys::napi_env, bytes: &[u8]) -> napi::Result<sys::napi_value> {
    let mut value = null_mut();
    // SAFETY: the environment that this was called in, and bytes of this length.
    napi::check_status!(unsafe {
        sys::napi_create_string_latin1(env, bytes.as_ptr().cast(), bytes.len() as isize, &mut value)
    })?;
    Ok(value)
}

/// A failure of the runtime, which is not expected.
pub(crate) fn unexpected(error: napi::Error) -> Raised {
    napi::Error::new("ERR_TOLLKEEPER", error.reason.clone())
}
