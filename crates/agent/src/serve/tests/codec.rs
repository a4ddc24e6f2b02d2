//! Messages as tonic takes them: prost's, without a generator.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Reads `In` and writes `Out`.
#[derive(Debug)]
pub(super) struct Prost<In, Out>(PhantomData<(In, Out)>);

impl<In, Out> Prost<In, Out> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<In, Out> Codec for Prost<In, Out>
where
    In: Message + Default + Send + 'static,
    Out: Message + Send + 'static,
{
    type Encode = Out;
    type Decode = In;
    type Encoder = Write<Out>;
    type Decoder = Read<In>;

    fn encoder(&mut self) -> Self::Encoder {
        Write(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        Read(PhantomData)
    }
}

#[derive(Debug)]
pub(super) struct Write<Out>(PhantomData<Out>);

impl<Out: Message> Encoder for Write<Out> {
    type Item = Out;
    type Error = Status;

    fn encode(&mut self, item: Out, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(format!("cannot write the answer: {error}")))
    }
}

#[derive(Debug)]
pub(super) struct Read<In>(PhantomData<In>);

impl<In: Message + Default> Decoder for Read<In> {
    type Item = In;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<In>, Status> {
        let read = In::decode(buffer).map(Some);
        read.map_err(|error| Status::invalid_argument(format!("cannot read the call: {error}")))
    }
}
