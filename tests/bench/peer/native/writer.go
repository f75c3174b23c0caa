package main

import (
	"context"
	"log"
	"maps"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// pause lies between two attempts of an INSERT.
const pause = 200 * time.Millisecond

// writer inserts loads and commits their offsets, one load after the other.
type writer struct {
	client *kgo.Client
	server driver.Conn
	full   <-chan *load
	spare  chan<- *load
}

func (w *writer) run(ctx context.Context) error {
	for {
		filled, err := receive(ctx, w.full)
		if err != nil {
			return err
		}
		if err := w.insert(ctx, filled); err != nil {
			return err
		}
		offsets := slices.Collect(maps.Values(filled.last))
		if err := w.client.CommitRecords(ctx, offsets...); err != nil {
			return err
		}
		filled.empty()
		if err := send(ctx, w.spare, filled); err != nil {
			return err
		}
	}
}

// insert sends every table's rows, all tables at once, until the server has them.
func (w *writer) insert(ctx context.Context, filled *load) error {
	all, ctx := errgroup.WithContext(ctx)
	for table, rows := range filled.tables {
		if rows.len() > 0 {
			all.Go(func() error { return w.insertTable(ctx, table, rows) })
		}
	}
	return all.Wait()
}

// insertTable tries again while the server is away. The same block again is one that the table's
// deduplication window knows, where it has one.
func (w *writer) insertTable(ctx context.Context, table string, rows *columns) error {
	for {
		err := rows.insert(ctx, w.server, table)
		if err == nil {
			return nil
		}
		log.Printf("%s: %v", table, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
