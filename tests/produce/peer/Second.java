// The same producer by the row message after the ALTER: `small` is gone, `price` has another
// type and number, `note` is new.
import DATABASE.orders.Rows.Row;
import DATABASE.orders.Rows.RowBatch;

public final class Second {
  public static void main(String[] arguments) throws Exception {
    Row full = Row.newBuilder().setId(3).setName("new").setPrice(1.5f).setNote("first").build();
    RowBatch.newBuilder().addRows(full).addRows(Row.newBuilder().setId(4)).build()
        .writeTo(System.out);
    System.out.flush();
  }
}
