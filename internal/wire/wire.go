package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Marshal returns a message in bytes. The same message always has the same bytes.
func Marshal(m proto.Message) []byte { return AppendMessage(nil, m) }

// AppendMessage appends what Marshal returns.
func AppendMessage(text []byte, m proto.Message) []byte {
	text, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(text, m)
	if err != nil {
		panic(fmt.Sprintf("wire: cannot encode %T: %v", m, err))
	}
	return text
}

// EnclosedSize is the size of a field that holds a message or bytes of the given size.
func EnclosedSize(field protowire.Number, size int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(size)
}

// AppendEnclosed appends what stands in front of a message or bytes of the given size.
func AppendEnclosed(text []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(text, field, protowire.BytesType), uint64(size))
}

// NumberSize is the size of what AppendNumber appends.
func NumberSize(field protowire.Number, n uint64) int {
	if n == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeVarint(n)
}

// AppendNumber appends a field with a number, unless it is zero.
func AppendNumber(text []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return text
	}
	return protowire.AppendVarint(protowire.AppendTag(text, field, protowire.VarintType), n)
}

// TextSize is the size of what AppendText appends.
func TextSize(field protowire.Number, size int) int {
	if size == 0 {
		return 0
	}
	return EnclosedSize(field, size)
}

// AppendText appends a field with bytes, unless there are none.
func AppendText[T string | []byte](text []byte, field protowire.Number, s T) []byte {
	if len(s) == 0 {
		return text
	}
	return append(AppendEnclosed(text, field, len(s)), s...)
}

// AppendOptional appends a field with bytes, also if there are none, unless they are nil.
func AppendOptional(text []byte, field protowire.Number, b []byte) []byte {
	if b == nil {
		return text
	}
	return append(AppendEnclosed(text, field, len(b)), b...)
}

// Next takes a field off the front of a message. Its value is a number, or bytes, which then are not nil. ok is false if
// the field is of another kind or cannot be read.
func Next(text []byte) (field protowire.Number, number uint64, value, rest []byte, ok bool) {
	field, kind, n := protowire.ConsumeTag(text)
	if n < 0 {
		return 0, 0, nil, nil, false
	}
	var m int
	switch text = text[n:]; kind {
	case protowire.VarintType:
		number, m = protowire.ConsumeVarint(text)
	case protowire.BytesType:
		if value, m = protowire.ConsumeBytes(text); value == nil {
			value = []byte{}
		}
	default:
		return 0, 0, nil, nil, false
	}
	if m < 0 {
		return 0, 0, nil, nil, false
	}
	return field, number, value, text[m:], true
}
