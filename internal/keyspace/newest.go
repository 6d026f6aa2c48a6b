package keyspace

// Get returns a key as this Writer left it, nil if it is not there.
func (w *Writer) Get(key []byte) (*KV, error) {
	var found *KV
	err := w.request(func() error {
		if len(key) == 0 {
			return ErrEmptyKey
		}
		l, err := w.latest(&PutRequest{Key: key, IgnoreValue: true})
		if err == nil && l.found {
			found = &l.kv
		}
		return err
	})
	return found, err
}

// Has says whether a key is there, as this Writer left it. It is cheaper than Get.
func (w *Writer) Has(key []byte) (bool, error) {
	var found bool
	err := w.request(func() error {
		if len(key) == 0 {
			return ErrEmptyKey
		}
		l, err := w.latest(&PutRequest{Key: key})
		found = l.found
		return err
	})
	return found, err
}
