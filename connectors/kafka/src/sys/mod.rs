//! All `unsafe` of the crate: the librdkafka calls that the wrapper lacks or makes slow.
//!
//! Owns: fetching (`fetch`), producing (`send`), listing offsets and describing topics (`admin`). Not here: any decision. Each type frees what it made, in the
//! order librdkafka wants: handles of topics and queues before their client, which every handle holds.
#![expect(unsafe_code, reason = "the only door to librdkafka's C interface")]

mod admin;
mod fetch;
mod send;

use std::{
    ffi::{CString, c_int},
    marker::PhantomData,
    ptr,
    time::Duration,
};

use rdkafka::{bindings as rd, consumer::BaseConsumer, error::RDKafkaErrorCode as Code, producer::BaseProducer};

pub(crate) use admin::{Spec, describe_topic, list_offsets};
pub(crate) use fetch::{FetchQueue, Fetched, MAX_POLL, PartitionFetch, Record};
pub(crate) use send::{Opaque, SendTopic, SharedHeaders};

use crate::context::{DeliveryContext, EventContext};

pub(crate) type FetchClient = BaseConsumer<EventContext>;
pub(crate) type SendClient = BaseProducer<DeliveryContext>;

fn millis(d: Duration) -> c_int {
    c_int::try_from(d.as_millis()).unwrap_or(c_int::MAX)
}

fn c_name(name: &str) -> Result<CString, Code> {
    CString::new(name).map_err(|_| Code::InvalidTopic)
}

/// A topic of one client. Must be dropped before the client, so its owner keeps the client after it.
struct TopicHandle(*mut rd::rd_kafka_topic_t);

// SAFETY: librdkafka's topic handles are reference counted and may be used from any thread.
unsafe impl Send for TopicHandle {}
// SAFETY: as above; the functions called on them lock inside.
unsafe impl Sync for TopicHandle {}

impl TopicHandle {
    fn new(client: *mut rd::rd_kafka_t, topic: &str) -> Result<Self, Code> {
        let name = c_name(topic)?;
        // SAFETY: the client lives (callers hold it), the name is copied, no own topic configuration is given.
        let ptr = unsafe { rd::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
        if ptr.is_null() { Err(Code::InvalidTopic) } else { Ok(Self(ptr)) }
    }
}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: made by rd_kafka_topic_new and destroyed once.
        unsafe { rd::rd_kafka_topic_destroy(self.0) }
    }
}

/// A client's raw handle, for the life of a borrow.
#[derive(Clone, Copy)]
pub(crate) struct NativeClient<'a> {
    ptr: *mut rd::rd_kafka_t,
    _life: PhantomData<&'a ()>,
}

impl<'a, C: rdkafka::ClientContext> From<&'a rdkafka::client::Client<C>> for NativeClient<'a> {
    fn from(client: &'a rdkafka::client::Client<C>) -> Self {
        Self { ptr: client.native_ptr(), _life: PhantomData }
    }
}
