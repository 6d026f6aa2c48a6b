package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// fields are numbers whose tags take one byte, and more.
var fields = rapid.OneOf(rapid.Int32Range(1, 40), rapid.Int32Range(1, int32(protowire.MaxValidNumber)))

// Each field has the bytes and the size that protowire gives it, and is read back.
func TestFieldsAreEncodedAsByProtowire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := protowire.Number(fields.Draw(t, "field"))
		number, text := rapid.Uint64().Draw(t, "number"), rapid.SliceOf(rapid.Byte()).Draw(t, "text")

		var got, want []byte
		got = AppendNumber(got, field, number)
		if number != 0 {
			want = protowire.AppendVarint(protowire.AppendTag(want, field, protowire.VarintType), number)
		}
		same(t, got, want, NumberSize(field, number))
		enclosed := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), text)
		same(t, append(AppendEnclosed(nil, field, len(text)), text...), enclosed, EnclosedSize(field, len(text)))
		if len(text) > 0 {
			same(t, AppendText(nil, field, string(text)), enclosed, TextSize(field, len(text)))
		} else {
			same(t, AppendText(nil, field, text), nil, TextSize(field, 0))
		}
		same(t, AppendOptional(nil, field, append([]byte{}, text...)), enclosed, EnclosedSize(field, len(text)))
		same(t, AppendOptional(nil, field, nil), nil, 0)

		message := append(append([]byte{}, got...), enclosed...)
		if number != 0 {
			f, n, value, rest, ok := Next(message)
			if !ok || f != field || n != number || value != nil {
				t.Fatalf("field %d: %d, %x, %v", f, n, value, ok)
			}
			message = rest
		}
		f, _, value, rest, ok := Next(message)
		if !ok || f != field || value == nil || !bytes.Equal(value, text) || len(rest) != 0 {
			t.Fatalf("field %d: %x, %v, and %x is left", f, value, ok, rest)
		}
	})
}

func same(t *rapid.T, got, want []byte, size int) {
	t.Helper()
	if !bytes.Equal(got, want) || size != len(want) {
		t.Fatalf("%x of size %d, want %x of size %d", got, size, want, len(want))
	}
}

// Next reads a field if protowire reads it and it is a number or bytes.
func FuzzNext(f *testing.F) {
	for _, text := range [][]byte{
		{}, {0x08, 0x01}, {0x00, 0x01}, {0x80, 0x01, 0x01}, {0x0a, 0x00}, {0x0a, 0x01}, {0x0d, 0, 0, 0, 0}, {0x0b, 0x0c}, {0x08},
		{0x88, 0x00, 0x01}, {0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, {0x82, 0x01, 0x02, 'a', 'b', 0x08},
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, kind, n := protowire.ConsumeField(text)
		readable := n >= 0 && (kind == protowire.VarintType || kind == protowire.BytesType)
		field, number, value, rest, ok := Next(text)
		if ok != readable {
			t.Fatalf("%x is read: %v, and by protowire: %v", text, ok, readable)
		}
		if !ok {
			return
		}
		if field != want || len(rest) != len(text)-n || (value != nil) != (kind == protowire.BytesType) {
			t.Fatalf("field %d and %x, want field %d of %d bytes", field, rest, want, n)
		}
		_, _, tag := protowire.ConsumeTag(text)
		if v, m := protowire.ConsumeVarint(text[tag:]); kind == protowire.VarintType && (m < 0 || v != number) {
			t.Fatalf("%d, want %d", number, v)
		}
		if b, m := protowire.ConsumeBytes(text[tag:]); kind == protowire.BytesType && (m < 0 || !bytes.Equal(b, value)) {
			t.Fatalf("%x, want %x", value, b)
		}
	})
}
