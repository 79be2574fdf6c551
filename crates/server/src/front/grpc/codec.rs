//! Encodes and decodes messages. A message that cannot be decoded is the caller's error, not ours.

use prost::Message;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The largest request; as on the HTTP API.
pub(super) const MAX_MESSAGE: usize = 64 * 1024;

/// Like [`ProstCodec`], except that an invalid message is `INVALID_ARGUMENT` instead of `INTERNAL`.
#[derive(Debug)]
pub(super) struct StrictCodec<Sent, Read>(ProstCodec<Sent, Read>);

impl<Sent, Read> Default for StrictCodec<Sent, Read> {
    fn default() -> Self {
        StrictCodec(ProstCodec::default())
    }
}

impl<Sent, Read> Codec for StrictCodec<Sent, Read>
where
    Sent: Message + Send + 'static,
    Read: Message + Default + Send + 'static,
{
    type Encode = Sent;
    type Decode = Read;
    type Encoder = ProstEncoder<Sent>;
    type Decoder = StrictDecoder<Read>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        StrictDecoder(self.0.decoder())
    }
}

#[derive(Debug)]
pub(super) struct StrictDecoder<Read>(ProstDecoder<Read>);

impl<Read: Message + Default> Decoder for StrictDecoder<Read> {
    type Item = Read;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Read>, Status> {
        self.0.decode(bytes).map_err(|status| match status.code() {
            Code::Internal => Status::invalid_argument(format!("the message cannot be read: {}", status.message())),
            _ => status,
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}
