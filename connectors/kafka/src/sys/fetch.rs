//! One partition's fetch queue read in batches, with the offset inside an end event.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    marker::PhantomData,
    ptr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use rdkafka::{bindings as rd, consumer::Consumer, error::RDKafkaErrorCode as Code};

use super::{FetchClient, TopicHandle, c_name, millis};

/// The queue of one partition's fetched records.
pub(crate) struct FetchQueue {
    ptr: *mut rd::rd_kafka_queue_t,
    _client: Arc<FetchClient>,
}

// SAFETY: librdkafka's queues lock inside and may be used from any thread.
unsafe impl Send for FetchQueue {}
// SAFETY: as above.
unsafe impl Sync for FetchQueue {}

impl FetchQueue {
    /// Makes a waiting poll return at once.
    pub(crate) fn wake(&self) {
        // SAFETY: the queue lives as long as `self`.
        unsafe { rd::rd_kafka_queue_yield(self.ptr) }
    }
}

impl Drop for FetchQueue {
    fn drop(&mut self) {
        // SAFETY: made by rd_kafka_queue_new and destroyed once, before the client.
        unsafe { rd::rd_kafka_queue_destroy(self.ptr) }
    }
}

/// One thing found in a fetch queue. Borrowed: it is freed when the visitor returns.
pub(crate) enum Fetched<'a> {
    Record(Record<'a>),
    /// The end of the partition: the offset is the one inside the event.
    End {
        offset: i64,
    },
    Error {
        code: Code,
        offset: i64,
        text: String,
    },
}

pub(crate) struct Record<'a> {
    message: *const rd::rd_kafka_message_t,
    _life: PhantomData<&'a ()>,
}

impl<'a> Record<'a> {
    pub(crate) fn offset(&self) -> i64 {
        // SAFETY: the message lives for 'a.
        unsafe { (*self.message).offset }
    }

    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        // SAFETY: the message and its bytes live for 'a; a null pointer is a null key.
        unsafe { bytes_of((*self.message).key, (*self.message).key_len) }
    }

    pub(crate) fn value(&self) -> Option<&'a [u8]> {
        // SAFETY: as for the key.
        unsafe { bytes_of((*self.message).payload, (*self.message).len) }
    }

    /// Unix milliseconds, -1 = none.
    pub(crate) fn timestamp_ms(&self) -> i64 {
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message lives for 'a, `kind` outlives the call.
        unsafe { rd::rd_kafka_message_timestamp(self.message, &mut kind) }
    }

    /// `None` if the record has no headers: then nothing is parsed or allocated.
    pub(crate) fn headers(&self) -> Option<Vec<(String, Option<Bytes>)>> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message lives for 'a and keeps the ownership of its headers.
        if unsafe { rd::rd_kafka_message_headers(self.message, &mut headers) }
            != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            return None;
        }
        let mut all = Vec::new();
        loop {
            let (mut name, mut value, mut size) = (ptr::null::<c_char>(), ptr::null::<c_void>(), 0usize);
            // SAFETY: the out pointers outlive the call; name and value live as long as the headers.
            let code = unsafe { rd::rd_kafka_header_get_all(headers, all.len(), &mut name, &mut value, &mut size) };
            if code != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Some(all);
            }
            // SAFETY: names are NUL-terminated; a null value is a null header.
            let (name, value) = unsafe { (CStr::from_ptr(name).to_string_lossy().into_owned(), bytes_of(value, size)) };
            all.push((name, value.map(Bytes::copy_from_slice)));
        }
    }
}

/// # Safety
/// `data` is null or points to `len` bytes that live for `'a`.
unsafe fn bytes_of<'a>(data: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: by contract.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) })
}

/// A fetch of one partition from one offset on, into a queue of its own. Dropping it stops the fetch; that waits for the client's thread, not for
/// a broker.
pub(crate) struct PartitionFetch {
    // Order of fields is order of destruction: topic, queue, client.
    topic: TopicHandle,
    partition: i32,
    queue: Arc<FetchQueue>,
    name: CString,
    buffer: Vec<*mut rd::rd_kafka_message_t>,
    client: Arc<FetchClient>,
}

// SAFETY: the raw pointers in `buffer` are only there during `poll`; all else may move between threads.
unsafe impl Send for PartitionFetch {}

impl PartitionFetch {
    /// No I/O. A wrong topic or partition shows as an error in the queue.
    pub(crate) fn start(client: &Arc<FetchClient>, topic: &str, partition: i32, offset: i64) -> Result<Self, Code> {
        let rk = client.client().native_ptr();
        let name = c_name(topic)?;
        let handle = TopicHandle::new(rk, topic)?;
        // SAFETY: the client lives; the queue is freed by FetchQueue, which holds the client.
        let queue = Arc::new(FetchQueue { ptr: unsafe { rd::rd_kafka_queue_new(rk) }, _client: Arc::clone(client) });
        // SAFETY: topic and queue live; the partition is not fetched by this client (the pool sees to it).
        let failed = unsafe { rd::rd_kafka_consume_start_queue(handle.0, partition, offset, queue.ptr) } != 0;
        if failed {
            // SAFETY: reads this thread's last error.
            return Err(unsafe { rd::rd_kafka_last_error() }.into());
        }
        Ok(Self {
            topic: handle,
            partition,
            queue,
            name,
            buffer: vec![ptr::null_mut(); MAX_POLL],
            client: Arc::clone(client),
        })
    }

    pub(crate) fn queue(&self) -> Arc<FetchQueue> {
        Arc::clone(&self.queue)
    }

    /// Waits up to `wait` for something, then takes what is there, and up to `linger` for more unless an event came. Returns how many were visited,
    /// at most [`MAX_POLL`].
    pub(crate) fn poll(&mut self, wait: Duration, linger: Duration, visit: &mut impl FnMut(Fetched<'_>)) -> usize {
        // SAFETY: the queue lives; the message is ours until destroyed.
        let first = unsafe { rd::rd_kafka_consume_queue(self.queue.ptr, millis(wait)) };
        if first.is_null() {
            return 0;
        }
        let mut event = visit_and_free(first, visit);
        let mut count = 1;
        for timeout in [Duration::ZERO, linger] {
            if event || count >= MAX_POLL {
                break;
            }
            // SAFETY: the buffer has room for the number given.
            let n = unsafe {
                rd::rd_kafka_consume_batch_queue(
                    self.queue.ptr,
                    millis(timeout),
                    self.buffer.as_mut_ptr(),
                    MAX_POLL - count,
                )
            };
            let n = usize::try_from(n).unwrap_or(0);
            for i in 0..n {
                event |= visit_and_free(self.buffer[i], visit);
            }
            count += n;
        }
        count
    }

    /// The client's own position: next offset after what was taken, control records included. `None` before the first.
    ///
    /// After an error or end event at offset x the client says x + 1 (it treats events as records); the reader discounts that.
    pub(crate) fn position(&self) -> Option<i64> {
        // SAFETY: the list is made, filled, read and destroyed here; the name is copied.
        let offset = unsafe {
            let list = rd::rd_kafka_topic_partition_list_new(1);
            let item = rd::rd_kafka_topic_partition_list_add(list, self.name.as_ptr(), self.partition);
            rd::rd_kafka_position(self.client.client().native_ptr(), list);
            let offset = (*item).offset;
            rd::rd_kafka_topic_partition_list_destroy(list);
            offset
        };
        (offset >= 0).then_some(offset)
    }
}

impl Drop for PartitionFetch {
    fn drop(&mut self) {
        // SAFETY: started in `start` and stopped once, while topic and queue live.
        unsafe { rd::rd_kafka_consume_stop(self.topic.0, self.partition) };
    }
}

/// Records of one poll.
pub(crate) const MAX_POLL: usize = 4096;

/// Whether it was an event and not a record.
fn visit_and_free(message: *mut rd::rd_kafka_message_t, visit: &mut impl FnMut(Fetched<'_>)) -> bool {
    use rd::rd_kafka_resp_err_t as E;
    // SAFETY: the message is ours and valid until destroyed below; nothing that borrows it outlives the visitor's call.
    unsafe {
        let event = match (*message).err {
            E::RD_KAFKA_RESP_ERR_NO_ERROR => {
                visit(Fetched::Record(Record { message, _life: PhantomData }));
                false
            }
            E::RD_KAFKA_RESP_ERR__PARTITION_EOF => {
                visit(Fetched::End { offset: (*message).offset });
                true
            }
            err => {
                let text = rd::rd_kafka_message_errstr(message);
                let text =
                    if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() };
                visit(Fetched::Error { code: err.into(), offset: (*message).offset, text });
                true
            }
        };
        rd::rd_kafka_message_destroy(message);
        event
    }
}
