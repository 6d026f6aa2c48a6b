package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// oneByteFields is the first field number whose tag takes more than one byte. Most tags take one byte, so this package
// handles them without a call of protowire.
const oneByteFields = 16

func tagSize(field protowire.Number) int {
	if field < oneByteFields {
		return 1
	}
	return protowire.SizeTag(field)
}

func appendTag(text []byte, field protowire.Number, kind protowire.Type) []byte {
	if field < oneByteFields {
		return append(text, byte(field)<<3|byte(kind))
	}
	return protowire.AppendTag(text, field, kind)
}

// Marshal encodes a message. The same message always has the same bytes.
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
	return tagSize(field) + protowire.SizeBytes(size)
}

// AppendEnclosed appends the tag and the size of a field that holds a message or bytes. The caller appends the content.
func AppendEnclosed(text []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(appendTag(text, field, protowire.BytesType), uint64(size))
}

// NumberSize is the size of what AppendNumber appends.
func NumberSize(field protowire.Number, n uint64) int {
	if n == 0 {
		return 0
	}
	return tagSize(field) + protowire.SizeVarint(n)
}

// AppendNumber appends a field with a number, unless it is zero.
func AppendNumber(text []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return text
	}
	return protowire.AppendVarint(appendTag(text, field, protowire.VarintType), n)
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

// AppendOptional appends a field with bytes, unless they are nil. It appends empty bytes.
func AppendOptional(text []byte, field protowire.Number, b []byte) []byte {
	if b == nil {
		return text
	}
	return append(AppendEnclosed(text, field, len(b)), b...)
}

// Next splits the first field off a message. The value of the field is a number, or bytes, which are then not nil. ok is
// false if the field has another type, or is malformed.
func Next(text []byte) (field protowire.Number, number uint64, value, rest []byte, ok bool) {
	if len(text) == 0 {
		return 0, 0, nil, nil, false
	}
	kind, n := protowire.Type(text[0]&7), 1
	if field = protowire.Number(text[0] >> 3); field == 0 || field >= oneByteFields {
		if field, kind, n = protowire.ConsumeTag(text); n < 0 {
			return 0, 0, nil, nil, false
		}
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
