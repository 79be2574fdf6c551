//! State in Redis or Valkey, decided by a script next to it.

mod batch;
mod msgpack;
mod script;
mod stored;

pub use batch::{Batch, Reply, ReplyError};
pub use script::{CHARGE, Call, REFUND, RELEASE, Script};
pub use stored::{read_log, read_string, state_key};
