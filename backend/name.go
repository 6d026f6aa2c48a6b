package backend

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the length limit of a name, in bytes.
const MaxName = 512

// CheckName returns nil if name can be leased on every backend, otherwise an [ErrInvalid] that says why not. A
// name is a path: parts of printable UTF-8 with slashes between them, none of them empty, "." or "..".
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalid)
	case len(name) > MaxName:
		return fmt.Errorf("%w: the name has %d bytes: it may have at most %d", ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name %q is not UTF-8", ErrInvalid, name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%w: the name %q has a part that is empty, \".\" or \"..\": write it like jobs/nightly", ErrInvalid, name)
		}
	}
	if !isPrintable(name) {
		return fmt.Errorf("%w: the name %q has a character that cannot be printed", ErrInvalid, name)
	}
	return nil
}

// isPrintable reports whether all characters of a text can be printed.
func isPrintable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' { // nearly no text has others
			return strings.IndexFunc(text[i:], func(r rune) bool { return !unicode.IsPrint(r) }) < 0
		}
	}
	return true
}

// Printable returns text for a terminal, a log or an error. It escapes every character that cannot be printed
// as in a Go string, and every byte that is not UTF-8. Other text stays unchanged, so escaping twice changes
// nothing. A [Backend] passes text through it that another program wrote, before the text becomes part of an
// error.
func Printable(text string) string {
	if isPrintable(text) && utf8.ValidString(text) {
		return text
	}
	escaped := make([]byte, 0, len(text)+len(text)/2)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			escaped = append(escaped, text[i:i+size]...)
		} else {
			quoted := strconv.Quote(text[i : i+size])
			escaped = append(escaped, quoted[1:len(quoted)-1]...)
		}
		i += size
	}
	return string(escaped)
}

// Length limits of the parts of a [Holder], in bytes.
const (
	MaxHolderID = 256
	MaxCardText = 4096
)

// CheckHolder returns nil if every backend can keep h, otherwise an [ErrInvalid] that says why not.
func CheckHolder(h Holder) error {
	if h.ID == "" {
		return fmt.Errorf("%w: the holder's id is empty", ErrInvalid)
	}
	for _, field := range []struct {
		what, text string
		most       int
	}{
		{"the holder's id", h.ID, MaxHolderID},
		{"the host on the holder's card", h.Card.Host, MaxHolderID},
	} {
		if err := checkText(field.what, field.text, field.most); err != nil {
			return err
		}
		if !isPrintable(field.text) {
			return fmt.Errorf("%w: %s has a character that cannot be printed: %q", ErrInvalid, field.what, field.text)
		}
	}
	return CheckCardText(h.Card.Text)
}

// CheckCardText returns nil if every backend can keep text on a [Card], otherwise an [ErrInvalid].
func CheckCardText(text string) error {
	return checkText("the text on the holder's card", text, MaxCardText)
}

func checkText(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%w: %s has %d bytes: it may have at most %d", ErrInvalid, what, len(text), most)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: %s is not UTF-8", ErrInvalid, what)
	}
	return nil
}
