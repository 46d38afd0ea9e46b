//! All `unsafe` of the crate: the librdkafka calls that the wrapper lacks or makes slow.
//!
//! Owns: one partition's fetch queue read in batches, with the offset inside an end event; a produce call without allocation per record;
//! list offsets with an isolation level; the id of a topic. Not here: any decision. Each type frees what it made, in the order librdkafka wants:
//! handles of topics and queues before their client, which every handle holds.
#![expect(unsafe_code, reason = "the only door to librdkafka's C interface")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    marker::PhantomData,
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rdkafka::{
    bindings as rd,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode as Code,
    producer::{BaseProducer, Producer},
    util::IntoOpaque,
};

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

/// Which offset to list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spec {
    Start,
    /// End below which no transaction is open.
    StableEnd,
    HighWatermark,
    /// First record at or after the time, -1 if there is none.
    AtTime(i64),
}

impl Spec {
    fn offset(self) -> i64 {
        match self {
            Spec::Start => rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST as i64,
            Spec::StableEnd | Spec::HighWatermark => rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_LATEST as i64,
            Spec::AtTime(ms) => ms,
        }
    }

    fn isolation(self) -> rd::rd_kafka_IsolationLevel_t {
        match self {
            Spec::StableEnd => rd::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED,
            _ => rd::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED,
        }
    }
}

/// A client's queue for the answers of one admin call.
struct ReplyQueue(*mut rd::rd_kafka_queue_t);

impl ReplyQueue {
    fn new(rk: *mut rd::rd_kafka_t) -> Self {
        // SAFETY: the client lives (callers hold it).
        Self(unsafe { rd::rd_kafka_queue_new(rk) })
    }

    fn poll(&self, until: Instant) -> Option<Reply> {
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: the queue lives; the event is freed by Reply.
        let event = unsafe { rd::rd_kafka_queue_poll(self.0, millis(left)) };
        (!event.is_null()).then_some(Reply(event))
    }
}

impl Drop for ReplyQueue {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed once.
        unsafe { rd::rd_kafka_queue_destroy(self.0) }
    }
}

struct Reply(*mut rd::rd_kafka_event_t);

impl Reply {
    fn check(&self) -> Result<(), Code> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { rd::rd_kafka_event_error(self.0) } {
            rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            err => Err(err.into()),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: taken from a queue and destroyed once.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

/// Options of one admin call.
struct CallOptions(*mut rd::rd_kafka_AdminOptions_t);

impl CallOptions {
    fn new(rk: *mut rd::rd_kafka_t, api: rd::rd_kafka_admin_op_t, timeout: Duration) -> Result<Self, Code> {
        let mut text = [0 as c_char; 256];
        // SAFETY: the client lives; the text buffer is as long as said.
        unsafe {
            let options = Self(rd::rd_kafka_AdminOptions_new(rk, api));
            match rd::rd_kafka_AdminOptions_set_request_timeout(
                options.0,
                millis(timeout),
                text.as_mut_ptr(),
                text.len(),
            ) {
                rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(options),
                err => Err(err.into()),
            }
        }
    }
}

impl Drop for CallOptions {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed once; calls copy them.
        unsafe { rd::rd_kafka_AdminOptions_destroy(self.0) }
    }
}

/// Offsets of `partitions` for each spec, all asked at once: `answer[spec][partition]`. Blocks up to `timeout`.
pub(crate) fn list_offsets(
    rk: NativeClient<'_>,
    topic: &str,
    partitions: &[i32],
    specs: &[Spec],
    timeout: Duration,
) -> Result<Vec<Vec<i64>>, Code> {
    let name = c_name(topic)?;
    let queue = ReplyQueue::new(rk.ptr);
    for (i, spec) in specs.iter().enumerate() {
        let options = CallOptions::new(rk.ptr, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS, timeout)?;
        // SAFETY: client, queue, options and list live during the call, which copies them.
        unsafe {
            let error = rd::rd_kafka_AdminOptions_set_isolation_level(options.0, spec.isolation());
            if !error.is_null() {
                let code = rd::rd_kafka_error_code(error);
                rd::rd_kafka_error_destroy(error);
                return Err(code.into());
            }
            rd::rd_kafka_AdminOptions_set_opaque(options.0, ptr::without_provenance_mut(i));
            let list = rd::rd_kafka_topic_partition_list_new(partitions.len() as c_int);
            for p in partitions {
                (*rd::rd_kafka_topic_partition_list_add(list, name.as_ptr(), *p)).offset = spec.offset();
            }
            rd::rd_kafka_ListOffsets(rk.ptr, list, options.0, queue.0);
            rd::rd_kafka_topic_partition_list_destroy(list);
        }
    }
    let until = Instant::now() + timeout + Duration::from_millis(500);
    let unknown = i64::from(rd::RD_KAFKA_OFFSET_INVALID);
    let mut answer = vec![vec![unknown; partitions.len()]; specs.len()];
    for _ in specs {
        let reply = queue.poll(until).ok_or(Code::OperationTimedOut)?;
        reply.check()?;
        // SAFETY: the event is a list offsets result (nothing else goes to this queue); its parts live as long as it does.
        unsafe {
            let spec = rd::rd_kafka_event_opaque(reply.0).addr();
            let mut n = 0;
            let infos = rd::rd_kafka_ListOffsets_result_infos(rd::rd_kafka_event_ListOffsets_result(reply.0), &mut n);
            for i in 0..n {
                let found = rd::rd_kafka_ListOffsetsResultInfo_topic_partition(*infos.add(i));
                if (*found).err != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    return Err((*found).err.into());
                }
                if let Some(at) = partitions.iter().position(|p| *p == (*found).partition) {
                    answer[spec][at] = (*found).offset;
                }
            }
        }
    }
    // While a broker restarts, the client may answer without an error and without an offset. Taken as an offset, that would be an empty log.
    if answer.iter().flatten().any(|offset| *offset == unknown) { Err(Code::LeaderNotAvailable) } else { Ok(answer) }
}

/// Id of a topic as its 16 bytes, and its number of partitions; `None` = no such topic. Blocks up to `timeout`.
pub(crate) fn describe_topic(
    rk: NativeClient<'_>,
    topic: &str,
    timeout: Duration,
) -> Result<Option<([u8; 16], usize)>, Code> {
    let name = c_name(topic)?;
    let queue = ReplyQueue::new(rk.ptr);
    let options = CallOptions::new(rk.ptr, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout)?;
    // SAFETY: client, queue, options and names live during the call, which copies them.
    unsafe {
        let mut names = [name.as_ptr()];
        let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), 1);
        rd::rd_kafka_DescribeTopics(rk.ptr, topics, options.0, queue.0);
        rd::rd_kafka_TopicCollection_destroy(topics);
    }
    let reply = queue.poll(Instant::now() + timeout + Duration::from_millis(500)).ok_or(Code::OperationTimedOut)?;
    reply.check()?;
    // SAFETY: the event is a describe topics result; its parts live as long as it does.
    unsafe {
        let mut n = 0;
        let found =
            rd::rd_kafka_DescribeTopics_result_topics(rd::rd_kafka_event_DescribeTopics_result(reply.0), &mut n);
        if n == 0 {
            return Ok(None);
        }
        let error = rd::rd_kafka_TopicDescription_error(*found);
        if !error.is_null() {
            return match Code::from(rd::rd_kafka_error_code(error)) {
                Code::NoError => Err(Code::Unknown),
                Code::UnknownTopicOrPartition | Code::UnknownTopic => Ok(None),
                code => Err(code),
            };
        }
        let mut partitions = 0;
        rd::rd_kafka_TopicDescription_partitions(*found, &mut partitions);
        let id = rd::rd_kafka_TopicDescription_topic_id(*found);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&rd::rd_kafka_Uuid_most_significant_bits(id).to_be_bytes());
        bytes[8..].copy_from_slice(&rd::rd_kafka_Uuid_least_significant_bits(id).to_be_bytes());
        Ok(Some((bytes, partitions)))
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
