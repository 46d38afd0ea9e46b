"""The client script for kafka-python. The steps are those of README.md."""

import re
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from steps import CODECS, DEADLINE, Script, arguments, eventually, expect

BOOTSTRAP, PREFIX = arguments()
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
TIME = int(time.time() * 1000) - 3_600_000


def topic(name):
    return f"{PREFIX}-{name}"


def code(work, *args):
    """Kafka's number of the error that a call ends with, 0 for none."""
    try:
        work(*args)
        return 0
    except KafkaError as e:
        number = getattr(e, "errno", None)
        return number if isinstance(number, int) else type(e).__name__


def create(name, partitions=1, factor=1, config=None):
    admin.create_topics({name: {"num_partitions": partitions, "replication_factor": factor, "configs": config or {}}}, timeout_ms=30000)


def producer(**options):
    return KafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=5, max_block_ms=int(DEADLINE * 1000), **options)


def send(p, name, values, partitions=1, times=None):
    sent = []
    for i, value in enumerate(values):
        sent.append(p.send(name, str(value).encode(), partition=i % partitions, timestamp_ms=times[i] if times else None))
    p.flush(DEADLINE)
    return [f.get(DEADLINE) for f in sent]


def read(name, isolation="read_uncommitted"):
    """(offset, value) up to the end that this isolation level sees."""
    c = KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, isolation_level=isolation, auto_offset_reset="none")
    try:
        tp = TopicPartition(name, 0)
        c.assign([tp])
        c.seek_to_beginning(tp)
        goal, found, end = c.end_offsets([tp])[tp], [], time.monotonic() + DEADLINE
        while c.position(tp) < goal:
            for records in c.poll(timeout_ms=200).values():
                found += [(r.offset, r.value.decode()) for r in records]
            expect(time.monotonic() < end, "no end in sight")
        return found
    finally:
        c.close()


def create_topic():
    name = topic("created")
    create(name, 3)
    partitions = eventually("the topic is known", lambda: len(admin.describe_topics([name])[0]["partitions"]))
    again, bad, factor = code(create, name), code(create, "a b"), code(create, topic("factor"), 1, 3)
    config = code(create, topic("config"), 1, 1, {"cleanup.policy": "keep"})
    return f"partitions={partitions} again={again} bad_name={bad} factor_3={factor} bad_config={config}"


def produce(codec):
    name = topic("codec-" + codec)
    create(name)
    p = producer(compression_type=None if codec == "none" else codec, enable_idempotence=True)
    send(p, name, [f"{codec}-{i}-" + "x" * 100 for i in range(200)])
    p.close()
    found = read(name)
    expect([v.split("-")[1] for _, v in found] == [str(i) for i in range(200)], "records differ")
    return f"read={len(found)} offsets={found[0][0]}..{found[-1][0]}"


class Member:
    def __init__(self, name, group, seen):
        self.stop, self.assigned, self.count, self.error = threading.Event(), 0, 0, None
        self.thread = threading.Thread(target=self.run, args=(name, group, seen), daemon=True)
        self.thread.start()

    def run(self, name, group, seen):
        c = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
                          partition_assignment_strategy=[RangePartitionAssignor], session_timeout_ms=10000, heartbeat_interval_ms=500)
        try:
            c.subscribe([name])
            while not self.stop.is_set():
                for tp, records in c.poll(timeout_ms=100, max_records=1).items():
                    for r in records:
                        seen.append(r.value.decode())
                        self.count += 1
                        c.commit({tp: OffsetAndMetadata(r.offset + 1, "", -1)})
                self.assigned = len(c.assignment())
        except Exception as e:
            self.error = e
        finally:
            c.close()
            self.assigned = 0


def group_rebalance():
    name, group, seen = topic("group"), PREFIX + "-group", []
    create(name, 6)
    members = [Member(name, group, seen) for _ in range(3)]

    def alive():
        for m in members:
            if m.error:
                raise m.error
        return True

    try:
        eventually("three share", lambda: alive() and [m.assigned for m in members] == [2, 2, 2])
        p = producer()
        send(p, name, range(300), 6)
        eventually("300 are read", lambda: alive() and len(seen) >= 300)
        expect(all(m.count for m in members), "a member had nothing")
        members[0].stop.set()
        send(p, name, range(300, 600), 6)
        eventually("two share", lambda: alive() and [m.assigned for m in members[1:]] == [3, 3])
        eventually("600 are read", lambda: alive() and len(seen) >= 600)
        p.close()
    finally:
        for m in members:
            m.stop.set()
        for m in members:
            m.thread.join(DEADLINE)
    expect(sorted(map(int, seen)) == list(range(600)), f"{len(seen)} read, {len(set(seen))} different")
    state = admin.describe_groups([group])[group]["group_state"]
    return f"read={len(seen)} different={len(set(seen))} group_after={state.upper()}"


def transactional(name):
    p = producer(transactional_id=f"{PREFIX}-{name}")
    p.init_transactions()
    return p


def transactions(during):
    name = topic("transactions")
    create(name)
    p = transactional("plain")
    for i in range(3):
        p.begin_transaction()
        send(p, name, range(i * 10, i * 10 + 10))
        if i == 1:
            p.abort_transaction()
        else:
            p.commit_transaction()
    p.begin_transaction()
    send(p, name, range(30, 35))
    for isolation in ("read_committed", "read_uncommitted"):
        during[isolation] = len(read(name, isolation))
    p.commit_transaction()
    p.close()
    tp = TopicPartition(name, 0)
    # The last marker may be written after the commit was answered.
    latest = lambda: admin.list_partition_offsets({tp: OffsetSpec.LATEST})[tp].offset
    return f"end={eventually('the markers are there', lambda: latest() >= 39 and latest())}"


def read_level(isolation, during, expected):
    found = eventually("the marker is there", lambda: [f for f in [read(topic("transactions"), isolation)] if len(f) == len(expected)])[0]
    expect([int(v) for _, v in found] == expected, found)
    return f"open={during[isolation]} after={len(found)}"


def zombie_fenced():
    name = topic("zombie")
    create(name)
    zombie = transactional("zombie")
    zombie.begin_transaction()
    send(zombie, name, range(5))
    second = transactional("zombie")
    fenced = code(zombie.commit_transaction)
    expect(fenced != 0, "the zombie committed")
    second.begin_transaction()
    send(second, name, range(5, 10))
    second.commit_transaction()
    found = eventually("the commit is seen", lambda: read(name, "read_committed"))
    return f"error={fenced} read={','.join(v for _, v in found)}"


def transaction_offsets():
    name, group = topic("offsets"), PREFIX + "-offsets"
    create(name)
    p, seen, tp = transactional("offsets"), [], TopicPartition(name, 0)
    c = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False, isolation_level="read_committed")
    for offset, commit in ((5, True), (9, False)):
        p.begin_transaction()
        send(p, name, [1])
        p.send_offsets_to_transaction({tp: OffsetAndMetadata(offset, "", -1)}, c.group_metadata())
        if commit:
            p.commit_transaction()
        else:
            p.abort_transaction()
        seen.append(c.committed(tp))
    c.close()
    p.close()
    expect(seen == [5, 5], seen)
    return f"after_commit={seen[0]} after_abort={seen[1]}"


def delete_records():
    name, compacted = topic("delete"), topic("compacted")
    create(name)
    create(compacted, config={"cleanup.policy": "compact"})
    send(producer(), name, range(20))

    def delete(t, offset):
        tp = TopicPartition(t, 0)
        return admin.delete_records({tp: offset}, timeout_ms=30000)[tp]["low_watermark"]

    low = delete(name, 12)
    first = read(name)[0][0]
    return f"low={low} first={first} beyond={code(delete, name, 21)} compacted={code(delete, compacted, 0)} all={delete(name, -1)}"


def list_offsets():
    name = topic("times")
    create(name, config={"retention.ms": "-1"})
    send(producer(), name, range(100), times=[TIME + i * 10 for i in range(100)])
    tp = TopicPartition(name, 0)

    def at(spec):
        return admin.list_partition_offsets({tp: spec})[tp].offset

    by_time = [at(t) for t in (TIME - 1, TIME + 501, TIME + 990, TIME + 991)]
    ends = f"earliest={at(OffsetSpec.EARLIEST)} latest={at(OffsetSpec.LATEST)} newest={at(OffsetSpec.MAX_TIMESTAMP)}"
    return f"{ends} by_time={','.join(map(str, by_time))}"


def configs(kind, name):
    found = admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
    return found[kind.lower()][name]


def describe_configs():
    name = topic("configs")
    create(name, config={"retention.ms": "1234567"})
    eventually("the topic is known", lambda: admin.describe_topics([name])[0]["error_code"] == 0)

    def shown(found, option):
        return f"{option}={found[option]['value']}/{source(found[option])}"

    def source(entry):
        return getattr(entry["config_source"], "name", entry["config_source"])

    def alter(option, value):
        """The number in what it answers with, in place of an exception."""
        result = str(admin.alter_configs([ConfigResource("TOPIC", name, {option: value})])["topic"][name])
        number = re.search(r"\[Error (\d+)\]", result)
        return int(number[1]) if number else 0

    found = configs("TOPIC", name)
    before = " ".join(shown(found, o) for o in ("retention.ms", "cleanup.policy", "max.message.bytes"))
    alter("cleanup.policy", "compact")
    altered = eventually("it is altered", lambda: [v for v in [configs("TOPIC", name)["cleanup.policy"]] if v["value"] == "compact"])[0]
    refused = alter("retention.ms", "x")
    broker = configs("BROKER", "1")["transaction.max.timeout.ms"]
    missing = code(configs, "TOPIC", topic("nowhere"))
    return f"{before} altered={altered['value']}/{source(altered)} refused={refused} broker={broker['value']}/{source(broker)} missing={missing}"


def config_names():
    return ",".join(sorted(configs("TOPIC", topic("configs"))))


def delete_topic():
    name = topic("created")
    admin.delete_topics([name], timeout_ms=30000)
    eventually("it is gone", lambda: name not in admin.list_topics())
    return f"again={code(admin.delete_topics, [name])}"


def main():
    s, during = Script("kafka-python"), {}
    s.step("create_topic", create_topic)
    for codec in CODECS:
        s.step("produce_" + codec, produce, codec)
    s.step("group_rebalance", group_rebalance)
    s.step("transactions", transactions, during)
    committed = [*range(10), *range(20, 35)]
    s.step("read_committed", read_level, "read_committed", during, committed)
    s.step("read_uncommitted", read_level, "read_uncommitted", during, list(range(35)))
    s.step("zombie_fenced", zombie_fenced)
    s.step("transaction_offsets", transaction_offsets)
    s.step("delete_records", delete_records)
    s.step("list_offsets", list_offsets)
    s.step("describe_configs", describe_configs)
    s.step("config_names", config_names)
    s.step("delete_topic", delete_topic)


main()
