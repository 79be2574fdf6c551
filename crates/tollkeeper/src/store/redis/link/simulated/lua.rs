//! Runs the store's real scripts in Lua 5.1, as Redis does, over simulated data.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::data::{Data, Reply};

thread_local! {
    static ENGINE: Engine = Engine::new();
    /// The data of the server whose script runs.
    static RUNNING: RefCell<Option<Data>> = const { RefCell::new(None) };
}

struct Engine {
    lua: Lua,
    /// By their hash.
    compiled: RefCell<HashMap<String, Function>>,
}

/// Errors of commands are tables, which `redis.call` throws and `redis.pcall` returns.
const PRELUDE: &str = r#"
redis = {
  pcall = run_command,
  call = function(...)
    local reply = run_command(...)
    if type(reply) == "table" and reply.err then error(reply, 0) end
    return reply
  end,
  error_reply = function(text) return { err = text } end,
}
"#;

/// Runs a script, given with its hash.
pub(super) fn run(data: &mut Data, script: (&str, &str), keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
    data.has_written = false;
    RUNNING.set(Some(std::mem::take(data)));
    let reply = ENGINE.with(|engine| engine.run(script, keys, arguments));
    *data = RUNNING.take().unwrap_or_default();
    data.has_written = false;
    reply.unwrap_or_else(|error| Reply::Error(format!("ERR script: {error}")))
}

impl Engine {
    fn new() -> Engine {
        let lua = Lua::new();
        let prepared: mlua::Result<()> = (|| {
            let globals = lua.globals();
            globals.set("run_command", lua.create_function(run_command)?)?;
            let packing = lua.create_table()?;
            packing.set("pack", lua.create_function(pack)?)?;
            packing.set("unpack", lua.create_function(unpack)?)?;
            globals.set("struct", packing)?;
            let messages = lua.create_table()?;
            messages.set("unpack", lua.create_function(unpack_message)?)?;
            globals.set("cmsgpack", messages)?;
            lua.load(PRELUDE).exec()
        })();
        prepared.expect("Lua is prepared");
        Engine { lua, compiled: RefCell::default() }
    }

    fn run(&self, (sha, source): (&str, &str), keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> mlua::Result<Reply> {
        let known = self.compiled.borrow().get(sha).cloned();
        let script = match known {
            Some(script) => script,
            None => {
                let script = self.lua.load(source).into_function()?;
                self.compiled.borrow_mut().insert(sha.to_string(), script.clone());
                script
            }
        };
        let list = |words: &[Vec<u8>]| {
            let words = words.iter().map(|word| self.lua.create_string(word)).collect::<mlua::Result<Vec<_>>>()?;
            self.lua.create_sequence_from(words)
        };
        self.lua.globals().set("KEYS", list(keys)?)?;
        self.lua.globals().set("ARGV", list(arguments)?)?;
        match script.call::<Value>(()) {
            Ok(value) => from_lua(&value),
            Err(error) => Ok(Reply::Error(format!("ERR {error}"))),
        }
    }
}

fn run_command(lua: &Lua, words: MultiValue) -> mlua::Result<Value> {
    let words: Vec<Vec<u8>> = words.iter().map(word).collect();
    let reply = RUNNING.with_borrow_mut(|data| data.as_mut().map(|data| data.run(&words)));
    into_lua(lua, reply.unwrap_or_else(|| Reply::Error("ERR no server runs this".into())))
}

fn word(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => format!("{number}").into_bytes(),
        other => panic!("a script passes {other:?} to a command"),
    }
}

fn into_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let table = |field: &str, text: &str| {
        let table = lua.create_table()?;
        table.set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Ok => table("ok", "OK"),
        Reply::Number(number) => Ok(Value::Number(number as f64)),
        Reply::Text(text) => Ok(Value::String(lua.create_string(text)?)),
        Reply::List(items) => {
            let items = items.into_iter().map(|item| into_lua(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            Ok(Value::Table(lua.create_sequence_from(items)?))
        }
        Reply::Error(text) => table("err", &text),
    }
}

fn from_lua(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Number(1),
        Value::Integer(number) => Reply::Number(*number),
        Value::Number(number) => Reply::Number(*number as i64),
        Value::String(text) => Reply::Text(text.as_bytes().to_vec()),
        Value::Table(table) => {
            if let Ok(Some(error)) = table.get::<Option<String>>("err") {
                return Ok(Reply::Error(error));
            }
            list(table)?
        }
        other => panic!("a script returns {other:?}"),
    })
}

/// Up to the first nil, as Redis does.
fn list(table: &Table) -> mlua::Result<Reply> {
    let mut items = Vec::new();
    for index in 1.. {
        match table.get::<Value>(index)? {
            Value::Nil => break,
            value => items.push(from_lua(&value)?),
        }
    }
    Ok(Reply::List(items))
}

/// The sizes in a format such as `>BI7I4`: big-endian unsigned integers.
fn sizes(format: &str) -> Vec<usize> {
    let mut sizes = Vec::new();
    for letter in format.trim_start_matches('>').chars() {
        match letter {
            'B' => sizes.push(1),
            'I' => sizes.push(0),
            digit => *sizes.last_mut().expect("after a letter") = digit.to_digit(10).expect("a digit") as usize,
        }
    }
    sizes
}

fn pack(lua: &Lua, mut values: MultiValue) -> mlua::Result<mlua::String> {
    let format = word(&values.pop_front().unwrap_or_default());
    let mut packed = Vec::new();
    for (size, value) in sizes(&String::from_utf8_lossy(&format)).into_iter().zip(values) {
        let number = match value {
            Value::Integer(number) => number as u64,
            Value::Number(number) => number as u64,
            other => return Err(mlua::Error::runtime(format!("{other:?} is packed as a number"))),
        };
        packed.extend_from_slice(&number.to_be_bytes()[8 - size..]);
    }
    lua.create_string(packed)
}

fn unpack(_: &Lua, (format, bytes, from): (String, mlua::String, Option<usize>)) -> mlua::Result<MultiValue> {
    let (bytes, mut at) = (bytes.as_bytes().to_vec(), from.unwrap_or(1) - 1);
    let mut values = Vec::new();
    for size in sizes(&format) {
        let number = bytes[at..at + size].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        values.push(Value::Number(number as f64));
        at += size;
    }
    // As the library does, the place after them.
    values.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_iter(values))
}

/// An array of integers.
fn unpack_message(lua: &Lua, message: mlua::String) -> mlua::Result<Table> {
    let bytes = message.as_bytes().to_vec();
    let mut at = 0;
    let mut take = |count: usize| {
        at += count;
        bytes[at - count..at].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let length = match take(1) {
        short @ 0x90..=0x9f => short & 0xf,
        0xdc => take(2),
        0xdd => take(4),
        other => panic!("{other:#x} begins no array"),
    };
    let mut numbers = Vec::new();
    for _ in 0..length {
        numbers.push(match take(1) {
            small @ 0..=0x7f => small as f64,
            0xcc => take(1) as f64,
            0xcd => take(2) as f64,
            0xce => take(4) as f64,
            0xcf => take(8) as f64,
            0xd3 => take(8) as i64 as f64,
            negative @ 0xe0..=0xff => f64::from(negative as u8 as i8),
            other => panic!("{other:#x} is no integer"),
        });
    }
    lua.create_sequence_from(numbers)
}
