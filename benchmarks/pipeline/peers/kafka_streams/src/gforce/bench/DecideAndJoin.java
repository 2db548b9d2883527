package gforce.bench;

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The nearest job that Kafka Streams does with its own parts, exactly once.
 *
 * <p>A request is decided by the expert with the best counts in its group, emitted, and kept in a store with a
 * changelog. A label is joined to its pending request whenever it comes, counted for the request's tenant and group,
 * and the request leaves the store. A label that comes before its request waits in the same store.
 *
 * <p>It lacks what the processor beside it is for: there is no fair rule (the best expert of a group is followed, and
 * nothing makes the groups' error rates equal), no draw that can be repeated, no journal and no audit, no alerts, no
 * dead letters, no expiry of requests that never get a label, and a label that comes twice is not recognized.
 */
public final class DecideAndJoin {
    private static final String PENDING = "pending";
    private static final String OUTCOMES = "outcomes";
    private static final LongAdder REQUESTS = new LongAdder();
    private static final LongAdder LABELS = new LongAdder();
    private static final LongAdder JOINED = new LongAdder();
    private static final LongAdder PARKED = new LongAdder();

    /** What deciding and joining share: the two stores. */
    private abstract static class Step implements Processor<byte[], byte[], byte[], byte[]> {
        ProcessorContext<byte[], byte[]> context;
        KeyValueStore<String, Entry> pending;
        KeyValueStore<String, Outcomes> outcomes;

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            this.context = context;
            pending = context.getStateStore(PENDING);
            outcomes = context.getStateStore(OUTCOMES);
        }

        Outcomes outcomesOf(String tenant, String group) {
            Outcomes found = outcomes.get(tenant + '/' + group);
            return found == null ? new Outcomes() : found;
        }

        void count(String tenant, Entry entry, String label) {
            Outcomes changed = outcomesOf(tenant, entry.group());
            changed.add(entry, label);
            outcomes.put(tenant + '/' + entry.group(), changed);
            JOINED.increment();
        }
    }

    private static final class Decide extends Step {
        @Override
        public void process(Record<byte[], byte[]> record) {
            Event request = Event.parse(record.value());
            REQUESTS.increment();
            Entry known = pending.get(request.key());
            if (known != null && known.label() == null) {
                emit(record, request, known); // it came twice
                return;
            }
            Entry entry = choose(request);
            emit(record, request, entry);
            if (known == null) {
                pending.put(request.key(), entry);
            } else {
                count(request.tenant(), entry, known.label());
                pending.delete(request.key());
            }
        }

        private Entry choose(Event request) {
            Outcomes known = outcomesOf(request.tenant(), request.group());
            int best = 0;
            double most = -1.0;
            for (int expert = 0; expert < request.experts().size(); expert++) {
                double weight = known.weight(request.experts().get(expert));
                if (weight > most) {
                    best = expert;
                    most = weight;
                }
            }
            return Entry.pending(request, best, most);
        }

        private void emit(Record<byte[], byte[]> record, Event request, Entry entry) {
            context.forward(record.withValue(request.decision(entry.decided(), entry.weight())));
        }
    }

    private static final class Join extends Step {
        @Override
        public void process(Record<byte[], byte[]> record) {
            Event label = Event.parse(record.value());
            LABELS.increment();
            Entry known = pending.get(label.key());
            if (known == null) {
                pending.put(label.key(), Entry.parked(label.label()));
                PARKED.increment();
            } else if (known.label() == null) {
                count(label.tenant(), known, label.label());
                pending.delete(label.key());
            }
        }
    }

    static Topology topology(String requests, String feedback, String decisions, boolean inMemory) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        ByteArraySerializer written = new ByteArraySerializer();
        Topology topology = new Topology();
        topology.addSource("requests", bytes, bytes, requests);
        topology.addSource("feedback", bytes, bytes, feedback);
        topology.addProcessor("decide", Decide::new, "requests");
        topology.addProcessor("join", Join::new, "feedback");
        // Stores have a changelog unless that is turned off. Counts change many times between two commits, so they are
        // cached and written once; an entry is written once anyway.
        topology.addStateStore(
                Stores.keyValueStoreBuilder(supplier(PENDING, inMemory), Serdes.String(), Entry.SERDE), "decide", "join");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(supplier(OUTCOMES, inMemory), Serdes.String(), Outcomes.SERDE)
                        .withCachingEnabled(),
                "decide",
                "join");
        topology.addSink("decisions", decisions, written, written, "decide");
        return topology;
    }

    private static KeyValueBytesStoreSupplier supplier(String name, boolean inMemory) {
        return inMemory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name);
    }

    private static Properties settings(Map<String, String> environment) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, environment.get("BENCH_GROUP"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, environment.get("BENCH_BOOTSTRAP"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, environment.get("BENCH_STATE"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, environment.get("BENCH_THREADS"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, environment.get("BENCH_COMMIT_MS"));
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // As many records as a fetch of the other lines has; with the defaults of 1,000 it stops and starts fetching.
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 5_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5_000);
        settings.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG),
                environment.get("BENCH_FETCH_BYTES"));
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 128 << 10);
        return settings;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> environment = System.getenv();
        Topology topology = topology(
                environment.get("BENCH_REQUESTS"),
                environment.get("BENCH_FEEDBACK"),
                environment.get("BENCH_OUTPUT"),
                environment.get("BENCH_STORE").equals("in-memory"));
        KafkaStreams streams = new KafkaStreams(topology, settings(environment));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            System.out.printf(
                    "{\"requests\":%d,\"labels\":%d,\"joined\":%d,\"parked\":%d}%n",
                    REQUESTS.sum(), LABELS.sum(), JOINED.sum(), PARKED.sum());
            System.out.flush();
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }

    private DecideAndJoin() {}
}
