// A producer's rows by the table's first row message, as generated code of protobuf-java.
import DATABASE.orders.Rows.Row;
import DATABASE.orders.Rows.RowBatch;

public final class First {
  public static void main(String[] arguments) throws Exception {
    RowBatch batch =
        RowBatch.newBuilder()
            .addRows(
                Row.newBuilder()
                    .setId(Long.MIN_VALUE)
                    .setName("grüße ✓ 🦊")
                    .setPrice(-0.5)
                    .setAt(1_700_000_000_123L)
                    .setPaid(true)
                    .setCount(-1L) // UInt64: Java's long holds its bits
                    .setSmall(-128)
                    .addTags("a")
                    .addTags("")
                    .putAmounts("x", 7L))
            .addRows(Row.newBuilder().setId(0).setName("").setPaid(false).setSmall(0))
            .build();
    batch.writeTo(System.out);
    System.out.flush();
  }
}
