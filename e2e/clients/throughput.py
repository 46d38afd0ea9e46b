"""How fast librdkafka and the Java client produce to and consume from two running brokers, in turns. Prints a Markdown table of medians and ratios.

throughput.py NAME=HOST:PORT NAME=HOST:PORT [--client librdkafka|java] [--runs 3] [--records 1000000] [--size 200] [--consumes 3] [--jars DIR]
              [--queue-backoff 10]
The first broker is compared with the second, and they change places in each run. One warm-up run on both is not counted. A run reads what it has written
`--consumes` times (3) and counts the mean. `--jars` (Kafka's, from `kafka.sh install`) adds the Java client.

--queue-backoff is librdkafka's `fetch.queue.backoff.ms`. Its default is 1000: a consumer whose queue is full stops fetching for a second and then waits, so
that a rate counts these seconds and not what a broker does, and a faster broker fills the queue sooner. The Java client has nothing like it."""

import argparse
import re
import statistics
import subprocess
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def delete(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def librdkafka_produce(bootstrap, topic, records, size):
    p = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 500000})
    value = b"x" * size
    begin = time.monotonic()
    for i in range(records):
        while True:
            try:
                p.produce(topic, value, partition=i % PARTITIONS)
                break
            except BufferError:
                p.poll(0.05)
    if p.flush(120):
        raise TimeoutError("records are left")
    return records / (time.monotonic() - begin)


def librdkafka_consume(queue_backoff):
    def run(bootstrap, topic, records, _size):
        c = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                      "fetch.queue.backoff.ms": queue_backoff})
        begin, seen = time.monotonic(), 0
        c.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        while seen < records:
            seen += len(c.consume(10000, 1))
            if time.monotonic() - begin > 120:
                raise TimeoutError(f"{seen} of {records}")
        rate = records / (time.monotonic() - begin)
        c.close()
        return rate

    return run


def java(jars, tool, *args):
    command = ["java", "-Xmx512m", "-Dlog4j2.level=ERROR", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def java_produce(jars):
    def run(bootstrap, topic, records, size):
        out = java(jars, "ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
                   "--command-property", f"bootstrap.servers={bootstrap}", "acks=all", "linger.ms=5", "batch.size=131072")
        return float(re.findall(r"([\d.]+) records/sec", out)[-1])

    return run


def java_consume(jars):
    def run(bootstrap, topic, records, _size):
        out = java(jars, "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records))
        head, row = [line.split(", ") for line in out.strip().splitlines() if ", " in line][-2:]
        return float(dict(zip(head, row))["fetch.nMsg.sec"])

    return run


def main():
    a = argparse.ArgumentParser()
    a.add_argument("broker", nargs=2)
    a.add_argument("--runs", type=int, default=3)
    a.add_argument("--records", type=int, default=1_000_000)
    a.add_argument("--size", type=int, default=200)
    a.add_argument("--consumes", type=int, default=3)
    a.add_argument("--jars")
    a.add_argument("--client", choices=("librdkafka", "java"))
    a.add_argument("--queue-backoff", type=int, default=10)
    a = a.parse_args()
    brokers = [b.split("=", 1) for b in a.broker]
    clients = {"librdkafka": (librdkafka_produce, librdkafka_consume(a.queue_backoff))}
    if a.jars:
        clients["java"] = (java_produce(a.jars), java_consume(a.jars))
    names = [name for name, _ in brokers]
    print(f"| client | what | {names[0]} MB/s (runs) | {names[1]} MB/s (runs) | ratio of medians | of runs |\n|---|---|---|---|---|---|", flush=True)
    for client, works in clients.items():
        if a.client not in (None, client):
            continue
        rates = {}
        for run in range(-1, a.runs):
            for name, bootstrap in brokers if run % 2 else brokers[::-1]:
                topic = f"bench-{client}-{a.size}-{time.time_ns()}"
                create(bootstrap, topic)
                for what, work, times in zip(("produce", "consume"), works, (1, a.consumes)):
                    rate = statistics.mean(work(bootstrap, topic, a.records, a.size) for _ in range(times))
                    if run >= 0:
                        rates.setdefault((what, name), []).append(rate)
                delete(bootstrap, topic)
        for what in ("produce", "consume"):
            mine, other = ([r * a.size / 1e6 for r in rates[what, n]] for n in names)
            cells = [f"{statistics.median(r):.0f} ({' '.join(f'{x:.0f}' for x in r)})" for r in (mine, other)]
            ratio = statistics.median(mine) / statistics.median(other)
            pairs = " ".join(f"{x / y:.2f}" for x, y in zip(mine, other))
            print(f"| {client} | {what} {a.size} B | {cells[0]} | {cells[1]} | {ratio:.2f} | {pairs} |", flush=True)


main()
