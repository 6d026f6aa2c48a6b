package keyspace

// Get returns a key as this Writer left it, nil if it is not there.
func (w *Writer) Get(key []byte) (*KV, error) {
	l, err := w.ask(key, true)
	if err != nil || !l.found {
		return nil, err
	}
	return &l.kv, nil
}

// Has says whether a key is there, as this Writer left it. It is cheaper than Get.
func (w *Writer) Has(key []byte) (bool, error) {
	l, err := w.ask(key, false)
	return l.found, err
}

func (w *Writer) ask(key []byte, withValue bool) (l latest, err error) {
	err = w.request(func() error {
		if len(key) == 0 {
			return ErrEmptyKey
		}
		l, err = w.latest(key, withValue)
		return err
	})
	return l, err
}
