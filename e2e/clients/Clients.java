// The client script for the Java client. The steps are those of README.md. Run as a single file: java -cp LIBS/* Clients.java BOOTSTRAP PREFIX

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Clients {
  static final Duration DEADLINE = Duration.ofSeconds(60);
  static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
  static final long TIME = System.currentTimeMillis() - 3_600_000;
  static String bootstrap;
  static String prefix;
  static Admin admin;

  public static void main(String[] args) {
    bootstrap = args[0];
    prefix = args[1];
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    admin = Admin.create(p);
    int[] committedWhileOpen = new int[1];
    int[] allWhileOpen = new int[1];
    step("create_topic", Clients::createTopic);
    for (String codec : CODECS) step("produce_" + codec, () -> produce(codec));
    step("group_rebalance", Clients::groupRebalance);
    step("transactions", () -> transactions(committedWhileOpen, allWhileOpen));
    List<Integer> committed = Stream.concat(range(0, 10).boxed(), range(20, 35).boxed()).toList();
    step("read_committed", () -> readLevel("read_committed", committedWhileOpen[0], committed));
    step("read_uncommitted", () -> readLevel("read_uncommitted", allWhileOpen[0], range(0, 35).boxed().toList()));
    step("zombie_fenced", Clients::zombieFenced);
    step("transaction_offsets", Clients::transactionOffsets);
    step("delete_records", Clients::deleteRecords);
    step("list_offsets", Clients::listOffsets);
    step("describe_configs", Clients::describeConfigs);
    step("config_names", Clients::configNames);
    step("delete_topic", Clients::deleteTopic);
    // Threads of a step that failed do not hold the process.
    System.exit(0);
  }

  static void step(String name, Callable<String> work) {
    String line;
    try {
      line = "ok " + work.call();
    } catch (Throwable e) {
      e.printStackTrace();
      line = "FAIL " + e;
    }
    System.out.println("java " + name + " " + line.replaceAll("\\s+", " "));
    System.out.flush();
  }

  static IntStream range(int from, int to) {
    return IntStream.range(from, to);
  }

  static String topic(String name) {
    return prefix + "-" + name;
  }

  static <T> T get(Future<T> f) throws Exception {
    try {
      return f.get(DEADLINE.toSeconds(), TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw e.getCause() instanceof Exception cause ? cause : e;
    }
  }

  interface Work {
    void run() throws Exception;
  }

  /** Kafka's number of the error that a call ends with, 0 for none. */
  static int code(Work work) throws Exception {
    try {
      work.run();
      return 0;
    } catch (org.apache.kafka.common.KafkaException e) {
      return Errors.forException(e).code();
    }
  }

  static <T> T eventually(String what, Callable<T> check) throws Exception {
    long end = System.nanoTime() + DEADLINE.toNanos();
    while (true) {
      T got = check.call();
      if (got != null && !Boolean.FALSE.equals(got)) return got;
      if (System.nanoTime() > end) throw new TimeoutException("not in time: " + what);
      Thread.sleep(20);
    }
  }

  static void expect(boolean condition, String what) {
    if (!condition) throw new AssertionError(what);
  }

  static void create(String name, int partitions, int factor, Map<String, String> config) throws Exception {
    get(admin.createTopics(List.of(new NewTopic(name, partitions, (short) factor).configs(config))).all());
  }

  static KafkaProducer<String, String> producer(String... options) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("linger.ms", "5");
    for (int i = 0; i < options.length; i += 2) p.put(options[i], options[i + 1]);
    return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
  }

  static void send(KafkaProducer<String, String> p, String name, List<String> values, int partitions, Long time) throws Exception {
    List<Future<?>> sent = new ArrayList<>();
    for (int i = 0; i < values.size(); i++) {
      Long at = time == null ? null : time + i * 10L;
      sent.add(p.send(new ProducerRecord<>(name, i % partitions, at, null, values.get(i))));
    }
    p.flush();
    for (Future<?> f : sent) get(f);
  }

  static List<String> numbers(int from, int to) {
    return range(from, to).mapToObj(Integer::toString).toList();
  }

  static KafkaConsumer<String, String> consumer(String... options) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("enable.auto.commit", "false");
    for (int i = 0; i < options.length; i += 2) p.put(options[i], options[i + 1]);
    return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
  }

  /** Up to the end that this isolation level sees. */
  static List<ConsumerRecord<String, String>> read(String name, String isolation) {
    try (KafkaConsumer<String, String> c = consumer("isolation.level", isolation, "auto.offset.reset", "none")) {
      TopicPartition tp = new TopicPartition(name, 0);
      c.assign(List.of(tp));
      c.seekToBeginning(List.of(tp));
      long goal = c.endOffsets(List.of(tp), DEADLINE).get(tp);
      long end = System.nanoTime() + DEADLINE.toNanos();
      List<ConsumerRecord<String, String>> found = new ArrayList<>();
      while (c.position(tp) < goal) {
        for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(200))) found.add(r);
        expect(System.nanoTime() < end, "no end in sight");
      }
      return found;
    }
  }

  static String createTopic() throws Exception {
    String name = topic("created");
    create(name, 3, 1, Map.of());
    int partitions = eventually("the topic is known", () -> {
      try {
        return get(admin.describeTopics(List.of(name)).allTopicNames()).get(name).partitions().size();
      } catch (org.apache.kafka.common.errors.UnknownTopicOrPartitionException e) {
        return null;
      }
    });
    int again = code(() -> create(name, 1, 1, Map.of()));
    int bad = code(() -> create("a b", 1, 1, Map.of()));
    int factor = code(() -> create(topic("factor"), 1, 3, Map.of()));
    int config = code(() -> create(topic("config"), 1, 1, Map.of("cleanup.policy", "keep")));
    return "partitions=" + partitions + " again=" + again + " bad_name=" + bad + " factor_3=" + factor + " bad_config=" + config;
  }

  static String produce(String codec) throws Exception {
    String name = topic("codec-" + codec);
    create(name, 1, 1, Map.of());
    try (KafkaProducer<String, String> p = producer("compression.type", codec, "enable.idempotence", "true")) {
      send(p, name, range(0, 200).mapToObj(i -> codec + "-" + i + "-" + "x".repeat(100)).toList(), 1, null);
    }
    List<ConsumerRecord<String, String>> found = read(name, "read_uncommitted");
    expect(found.stream().map(r -> r.value().split("-")[1]).toList().equals(numbers(0, 200)), "records differ");
    return "read=" + found.size() + " offsets=" + found.get(0).offset() + ".." + found.get(found.size() - 1).offset();
  }

  static final class Member extends Thread {
    final String name;
    final String group;
    final Collection<String> seen;
    volatile boolean stop;
    volatile int assigned;
    volatile int count;
    volatile Exception error;

    Member(String name, String group, Collection<String> seen) {
      this.name = name;
      this.group = group;
      this.seen = seen;
      setDaemon(true);
      start();
    }

    @Override
    public void run() {
      String range = "org.apache.kafka.clients.consumer.RangeAssignor";
      try (KafkaConsumer<String, String> c = consumer("group.id", group, "auto.offset.reset", "earliest", "max.poll.records", "1",
          "partition.assignment.strategy", range, "session.timeout.ms", "10000", "heartbeat.interval.ms", "500")) {
        c.subscribe(List.of(name));
        while (!stop) {
          for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
            seen.add(r.value());
            count++;
            c.commitSync(Map.of(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1)));
          }
          assigned = c.assignment().size();
        }
      } catch (Exception e) {
        error = e;
      } finally {
        assigned = 0;
      }
    }
  }

  static boolean share(List<Member> members, int each) throws Exception {
    for (Member m : members) if (m.error != null) throw m.error;
    return members.stream().allMatch(m -> m.assigned == each);
  }

  static String groupRebalance() throws Exception {
    String name = topic("group");
    String group = prefix + "-group";
    create(name, 6, 1, Map.of());
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    List<Member> members = range(0, 3).mapToObj(i -> new Member(name, group, seen)).toList();
    try (KafkaProducer<String, String> p = producer()) {
      eventually("three share", () -> share(members, 2));
      send(p, name, numbers(0, 300), 6, null);
      eventually("300 are read", () -> share(members, 2) && seen.size() >= 300);
      expect(members.stream().allMatch(m -> m.count > 0), "a member had nothing");
      members.get(0).stop = true;
      send(p, name, numbers(300, 600), 6, null);
      eventually("two share", () -> share(members.subList(1, 3), 3));
      eventually("600 are read", () -> share(members.subList(1, 3), 3) && seen.size() >= 600);
    } finally {
      for (Member m : members) m.stop = true;
      for (Member m : members) m.join(DEADLINE.toMillis());
    }
    List<Integer> sorted = seen.stream().map(Integer::valueOf).sorted().toList();
    expect(sorted.equals(range(0, 600).boxed().toList()), seen.size() + " read, " + new TreeSet<>(seen).size() + " different");
    Object state = get(admin.describeConsumerGroups(List.of(group)).all()).get(group).groupState();
    return "read=" + seen.size() + " different=" + new TreeSet<>(seen).size() + " group_after=" + state.toString().toUpperCase();
  }

  static KafkaProducer<String, String> transactional(String name) {
    KafkaProducer<String, String> p = producer("transactional.id", prefix + "-" + name);
    p.initTransactions();
    return p;
  }

  static String transactions(int[] committed, int[] all) throws Exception {
    String name = topic("transactions");
    create(name, 1, 1, Map.of());
    try (KafkaProducer<String, String> p = transactional("plain")) {
      for (int i = 0; i < 3; i++) {
        p.beginTransaction();
        send(p, name, numbers(i * 10, i * 10 + 10), 1, null);
        if (i == 1) p.abortTransaction();
        else p.commitTransaction();
      }
      p.beginTransaction();
      send(p, name, numbers(30, 35), 1, null);
      committed[0] = read(name, "read_committed").size();
      all[0] = read(name, "read_uncommitted").size();
      p.commitTransaction();
    }
    // The last marker may be written after the commit was answered.
    eventually("the markers are there", () -> offset(name, OffsetSpec.latest()) >= 39);
    return "end=" + offset(name, OffsetSpec.latest());
  }

  static String readLevel(String isolation, int open, List<Integer> expected) throws Exception {
    List<ConsumerRecord<String, String>> found = eventually("the marker is there", () -> {
      List<ConsumerRecord<String, String>> now = read(topic("transactions"), isolation);
      return now.size() == expected.size() ? now : null;
    });
    expect(found.stream().map(r -> Integer.valueOf(r.value())).toList().equals(expected), "records differ");
    return "open=" + open + " after=" + found.size();
  }

  static String zombieFenced() throws Exception {
    String name = topic("zombie");
    create(name, 1, 1, Map.of());
    KafkaProducer<String, String> zombie = transactional("zombie");
    zombie.beginTransaction();
    send(zombie, name, numbers(0, 5), 1, null);
    List<ConsumerRecord<String, String>> found;
    int fenced;
    try (KafkaProducer<String, String> second = transactional("zombie")) {
      fenced = code(zombie::commitTransaction);
      expect(fenced != 0, "the zombie committed");
      second.beginTransaction();
      send(second, name, numbers(5, 10), 1, null);
      second.commitTransaction();
      found = eventually("the commit is seen", () -> {
        List<ConsumerRecord<String, String>> now = read(name, "read_committed");
        return now.isEmpty() ? null : now;
      });
    } finally {
      zombie.close(Duration.ZERO);
    }
    return "error=" + fenced + " read=" + found.stream().map(ConsumerRecord::value).collect(Collectors.joining(","));
  }

  static String transactionOffsets() throws Exception {
    String name = topic("offsets");
    create(name, 1, 1, Map.of());
    TopicPartition tp = new TopicPartition(name, 0);
    List<Long> seen = new ArrayList<>();
    try (KafkaProducer<String, String> p = transactional("offsets");
        KafkaConsumer<String, String> c = consumer("group.id", prefix + "-offsets", "isolation.level", "read_committed")) {
      for (boolean commit : new boolean[] {true, false}) {
        p.beginTransaction();
        send(p, name, List.of("1"), 1, null);
        p.sendOffsetsToTransaction(Map.of(tp, new OffsetAndMetadata(commit ? 5 : 9)), c.groupMetadata());
        if (commit) p.commitTransaction();
        else p.abortTransaction();
        seen.add(c.committed(java.util.Set.of(tp), DEADLINE).get(tp).offset());
      }
    }
    expect(seen.equals(List.of(5L, 5L)), seen.toString());
    return "after_commit=" + seen.get(0) + " after_abort=" + seen.get(1);
  }

  static long delete(String topic, long offset) throws Exception {
    TopicPartition tp = new TopicPartition(topic, 0);
    return get(admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(offset))).lowWatermarks().get(tp)).lowWatermark();
  }

  static String deleteRecords() throws Exception {
    String name = topic("delete");
    String compacted = topic("compacted");
    create(name, 1, 1, Map.of());
    create(compacted, 1, 1, Map.of("cleanup.policy", "compact"));
    try (KafkaProducer<String, String> p = producer()) {
      send(p, name, numbers(0, 20), 1, null);
    }
    long low = delete(name, 12);
    long first = read(name, "read_uncommitted").get(0).offset();
    int beyond = code(() -> delete(name, 21));
    int refused = code(() -> delete(compacted, 0));
    return "low=" + low + " first=" + first + " beyond=" + beyond + " compacted=" + refused + " all=" + delete(name, -1);
  }

  static long offset(String topic, OffsetSpec spec) throws Exception {
    TopicPartition tp = new TopicPartition(topic, 0);
    return get(admin.listOffsets(Map.of(tp, spec)).partitionResult(tp)).offset();
  }

  static String listOffsets() throws Exception {
    String name = topic("times");
    create(name, 1, 1, Map.of("retention.ms", "-1"));
    try (KafkaProducer<String, String> p = producer()) {
      send(p, name, numbers(0, 100), 1, TIME);
    }
    List<String> byTime = new ArrayList<>();
    for (long t : new long[] {TIME - 1, TIME + 501, TIME + 990, TIME + 991}) byTime.add("" + offset(name, OffsetSpec.forTimestamp(t)));
    return "earliest=" + offset(name, OffsetSpec.earliest()) + " latest=" + offset(name, OffsetSpec.latest()) + " newest="
        + offset(name, OffsetSpec.maxTimestamp()) + " by_time=" + String.join(",", byTime);
  }

  static Config configs(ConfigResource.Type type, String name) throws Exception {
    ConfigResource resource = new ConfigResource(type, name);
    return get(admin.describeConfigs(List.of(resource)).values().get(resource));
  }

  static String shown(Config found, String option) {
    return option + "=" + found.get(option).value() + "/" + found.get(option).source();
  }

  static void alter(String name, String option, String value) throws Exception {
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
    AlterConfigOp op = new AlterConfigOp(new ConfigEntry(option, value), AlterConfigOp.OpType.SET);
    get(admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all());
  }

  static String describeConfigs() throws Exception {
    String name = topic("configs");
    ConfigResource.Type type = ConfigResource.Type.TOPIC;
    create(name, 1, 1, Map.of("retention.ms", "1234567"));
    Config found = configs(type, name);
    String before = Stream.of("retention.ms", "cleanup.policy", "max.message.bytes").map(o -> shown(found, o)).collect(Collectors.joining(" "));
    alter(name, "cleanup.policy", "compact");
    String altered = eventually("it is altered", () -> {
      Config now = configs(type, name);
      return now.get("cleanup.policy").value().equals("compact") ? shown(now, "cleanup.policy") : null;
    });
    int refused = code(() -> alter(name, "retention.ms", "x"));
    String broker = shown(configs(ConfigResource.Type.BROKER, "1"), "transaction.max.timeout.ms");
    int missing = code(() -> configs(type, topic("nowhere")));
    return before + " altered=" + altered + " refused=" + refused + " broker=" + broker + " missing=" + missing;
  }

  static String configNames() throws Exception {
    return configs(ConfigResource.Type.TOPIC, topic("configs")).entries().stream().map(ConfigEntry::name).sorted().collect(Collectors.joining(","));
  }

  static String deleteTopic() throws Exception {
    String name = topic("created");
    get(admin.deleteTopics(List.of(name)).all());
    eventually("it is gone", () -> !get(admin.listTopics().names()).contains(name));
    return "again=" + code(() -> get(admin.deleteTopics(List.of(name)).all()));
  }
}
