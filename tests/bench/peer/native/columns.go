package main

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"native/rows"
)

const daySeconds = 86_400

// columns are the rows of one table that wait to be inserted; memory is kept from load to load.
//
// Strings lie in the messages that they came with: nothing is copied before the INSERT.
type columns struct {
	event    []uint64
	account  []int64
	at       []int64
	day      []time.Time
	kind     []string
	name     []string
	amount   []float64
	quantity []int32
	ok       []bool
	note     []*string
}

// add takes the rows of one message.
func (c *columns) add(batch *rows.RowBatch) {
	for _, row := range batch.Rows {
		c.event = append(c.event, row.Event)
		c.account = append(c.account, row.Account)
		c.at = append(c.at, row.At)
		c.day = append(c.day, time.Unix(int64(row.Day)*daySeconds, 0).UTC())
		c.kind = append(c.kind, row.Kind)
		c.name = append(c.name, row.Name)
		c.amount = append(c.amount, row.Amount)
		c.quantity = append(c.quantity, row.Quantity)
		c.ok = append(c.ok, row.Ok)
		c.note = append(c.note, row.Note)
	}
}

func (c *columns) len() int {
	return len(c.event)
}

// insert sends all rows as one block; it may be called again with the same rows.
func (c *columns) insert(ctx context.Context, server driver.Conn, table string) error {
	batch, err := server.PrepareBatch(ctx, "INSERT INTO "+table+
		" (event, account, at, day, kind, name, amount, quantity, ok, note)")
	if err != nil {
		return err
	}
	defer batch.Close()
	for index, values := range []any{
		c.event, c.account, c.at, c.day, c.kind, c.name, c.amount, c.quantity, c.ok, c.note,
	} {
		if err := batch.Column(index).Append(values); err != nil {
			return err
		}
	}
	return batch.Send()
}

func (c *columns) empty() {
	*c = columns{
		c.event[:0], c.account[:0], c.at[:0], c.day[:0], c.kind[:0],
		c.name[:0], c.amount[:0], c.quantity[:0], c.ok[:0], c.note[:0],
	}
}
