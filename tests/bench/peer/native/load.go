package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"native/rows"
)

// tableHeader names a message's table.
const tableHeader = "table"

// load is what is inserted together, before the offsets behind it are committed.
type load struct {
	tables map[string]*columns
	// last record of each partition, of those that are in it.
	last map[int32]*kgo.Record
	// since its first row.
	since time.Time
	// decoded is the latest message, whose memory is used again.
	decoded *rows.RowBatch
}

func newLoad(tables []string) *load {
	made := &load{
		tables:  make(map[string]*columns, len(tables)),
		last:    map[int32]*kgo.Record{},
		decoded: rows.RowBatchFromVTPool(),
	}
	for _, table := range tables {
		made.tables[table] = &columns{}
	}
	return made
}

// add takes a message, and returns how many rows its table has now.
func (l *load) add(record *kgo.Record) (int, error) {
	table := tableOf(record)
	into, known := l.tables[table]
	if !known {
		return 0, fmt.Errorf("partition %d, offset %d: no table %q",
			record.Partition, record.Offset, table)
	}
	l.decoded.ResetVT()
	if err := l.decoded.UnmarshalVTUnsafe(record.Value); err != nil {
		return 0, fmt.Errorf("partition %d, offset %d: %w",
			record.Partition, record.Offset, err)
	}
	if len(l.last) == 0 {
		l.since = time.Now()
	}
	into.add(l.decoded)
	l.last[record.Partition] = record
	return into.len(), nil
}

func (l *load) isEmpty() bool {
	return len(l.last) == 0
}

func (l *load) empty() {
	for _, table := range l.tables {
		table.empty()
	}
	clear(l.last)
}

func tableOf(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == tableHeader {
			return string(header.Value)
		}
	}
	return ""
}
