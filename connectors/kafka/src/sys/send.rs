//! A produce call without an allocation per record, and headers that all records of a batch share.

use std::{ffi::c_void, ptr, sync::Arc};

use bytes::Bytes;
use rdkafka::{bindings as rd, error::RDKafkaErrorCode as Code, producer::Producer, util::IntoOpaque};

use super::{SendClient, TopicHandle};

/// What comes back with a delivery report: call and index, in the bits of a pointer that nobody follows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opaque(u64);

impl Opaque {
    pub(crate) fn new(call: u32, index: u32) -> Self {
        Self(u64::from(call) << 32 | u64::from(index))
    }

    pub(crate) fn call(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}

const _: () = assert!(size_of::<usize>() == 8, "call and index need a pointer of 64 bits");

impl IntoOpaque for Opaque {
    fn into_ptr(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0 as usize)
    }

    unsafe fn from_ptr(ptr: *mut c_void) -> Self {
        Self(ptr.addr() as u64)
    }
}

/// Headers that every record of a batch gets.
pub(crate) struct SharedHeaders(*mut rd::rd_kafka_headers_t);

// SAFETY: plain memory; only copied from once it is filled.
unsafe impl Send for SharedHeaders {}
// SAFETY: as above.
unsafe impl Sync for SharedHeaders {}

impl SharedHeaders {
    /// `None` if there are none.
    pub(crate) fn new(headers: &[(String, Bytes)]) -> Option<Self> {
        if headers.is_empty() {
            return None;
        }
        // SAFETY: names and values are copied; lengths are given, so no NUL is needed.
        unsafe {
            let list = rd::rd_kafka_headers_new(headers.len());
            for (name, value) in headers {
                rd::rd_kafka_header_add(
                    list,
                    name.as_ptr().cast(),
                    name.len() as isize,
                    value.as_ptr().cast(),
                    value.len() as isize,
                );
            }
            Some(Self(list))
        }
    }
}

impl Drop for SharedHeaders {
    fn drop(&mut self) {
        // SAFETY: made in `new`; clients get copies.
        unsafe { rd::rd_kafka_headers_destroy(self.0) }
    }
}

/// A topic to send to.
pub(crate) struct SendTopic {
    topic: TopicHandle,
    client: Arc<SendClient>,
}

impl SendTopic {
    pub(crate) fn new(client: &Arc<SendClient>, topic: &str) -> Result<Self, Code> {
        Ok(Self { topic: TopicHandle::new(client.client().native_ptr(), topic)?, client: Arc::clone(client) })
    }

    /// Copies one record into the client's queue; never blocks. `QueueFull`: serve deliveries, send again.
    pub(crate) fn send(
        &self,
        partition: i32,
        timestamp_ms: i64,
        headers: Option<&SharedHeaders>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        opaque: Opaque,
    ) -> Result<(), Code> {
        use rd::rd_kafka_vtype_t as V;
        let (key, key_len) = key.map_or((ptr::null(), 0), |k| (k.as_ptr(), k.len()));
        let (value, value_len) = value.map_or((ptr::null(), 0), |v| (v.as_ptr(), v.len()));
        // SAFETY: each tag is followed by the arguments that the header file names for it, with their C types; key and value are copied
        // (MSG_F_COPY); the copied headers are the client's on success and freed here otherwise.
        unsafe {
            let headers = headers.map_or(ptr::null_mut(), |h| rd::rd_kafka_headers_copy(h.0));
            let code = rd::rd_kafka_producev(
                self.client.client().native_ptr(),
                V::RD_KAFKA_VTYPE_RKT,
                self.topic.0,
                V::RD_KAFKA_VTYPE_PARTITION,
                partition,
                V::RD_KAFKA_VTYPE_MSGFLAGS,
                rd::RD_KAFKA_MSG_F_COPY,
                V::RD_KAFKA_VTYPE_VALUE,
                value,
                value_len,
                V::RD_KAFKA_VTYPE_KEY,
                key,
                key_len,
                V::RD_KAFKA_VTYPE_TIMESTAMP,
                timestamp_ms,
                V::RD_KAFKA_VTYPE_OPAQUE,
                opaque.into_ptr(),
                V::RD_KAFKA_VTYPE_HEADERS,
                headers,
                V::RD_KAFKA_VTYPE_END,
            );
            if code == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Ok(());
            }
            if !headers.is_null() {
                rd::rd_kafka_headers_destroy(headers);
            }
            Err(code.into())
        }
    }
}
