import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The peer: Kafka Streams routes one topic of many tables to a topic per table, by header.
 *
 * <p>It receives a properties file: Kafka Streams' own settings, and three of this program
 * (bench.source, bench.output.prefix). It copies key, value, headers and timestamp as bytes and
 * never decodes a row. It ends with status 1 when a stream thread dies, 0 on SIGTERM.
 */
public final class Routing {
  private Routing() {}

  /** Runs until ended from outside. */
  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    try (FileInputStream file = new FileInputStream(args[0])) {
      settings.load(file);
    }
    String source = settings.getProperty("bench.source");
    String prefix = settings.getProperty("bench.output.prefix");

    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(source, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .to(
            (key, value, context) -> {
              Header table = context.headers().lastHeader("table");
              return prefix + new String(table.value(), StandardCharsets.UTF_8);
            },
            Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));

    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch ended = new CountDownLatch(1);
    int[] status = {0};
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          status[0] = 1;
          ended.countDown();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  streams.close(java.time.Duration.ofSeconds(10));
                  ended.countDown();
                }));
    streams.start();
    ended.await();
    if (status[0] != 0) {
      Runtime.getRuntime().halt(status[0]);
    }
  }
}
