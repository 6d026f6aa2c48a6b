package endpoints

import (
	"bytes"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasekeeper/leasekeeper/backend"
)

// MarkRange returns the range of the keys with the marks of names that begin with prefix and follow after: from key, up to but
// not including end. root is the namespace of the backend, with its slash.
func MarkRange(root, prefix, after string) (key, end []byte) {
	key = []byte(backend.MarkPrefix + root + prefix)
	end = bytes.Clone(key)
	end[len(end)-1]++ // no text in UTF-8 has a byte 0xff
	if behind := append([]byte(backend.MarkPrefix+root+after), 0); bytes.Compare(behind, key) > 0 {
		key = behind // also if after is empty: no name is
	}
	return key, end
}

// ReadMarks returns the marks in keys of [MarkRange].
func ReadMarks(root string, keys []*mvccpb.KeyValue) (marks []backend.NamedMark) {
	for _, kv := range keys {
		marks = append(marks, readMark(root, kv.Key, kv.Value))
	}
	return marks
}

func readMark(root string, key, value []byte) backend.NamedMark {
	m := backend.NamedMark{Name: string(key[len(backend.MarkPrefix+root):])}
	if m.Mark, m.Err = backend.ParseMark(string(value)); m.Err == nil {
		m.Err = backend.CheckName(m.Name)
	}
	if m.Err != nil {
		m.Err = fmt.Errorf("%w: correct the key %s, or delete it", m.Err, backend.Printable(string(key)))
	}
	return m
}
