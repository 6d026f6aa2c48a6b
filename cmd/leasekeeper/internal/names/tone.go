package names

import (
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// nobody stands for the holder of a free name in a table.
const nobody = "nobody"

// unreadable stands for the holder of a name whose record cannot be read.
const unreadable = "unreadable"

// nameTone returns the tone of a cell in the table of `ls`.
func nameTone(row []string, column int) console.Tone {
	if column != 1 || row[0] == "NAME" && row[2] == "TOKEN" {
		return console.Plain
	}
	switch row[column] {
	case "-":
		return console.Free
	case unreadable:
		return console.Lost
	}
	return console.Held
}

// tenureTone returns the tone of a cell in the table of `history`.
func tenureTone(row []string, column int) console.Tone {
	if column != 4 {
		return console.Plain
	}
	switch why, _, _ := strings.Cut(row[column], ":"); backend.Reason(why) {
	case backend.Expired:
		return console.Lost
	case backend.Revoked:
		return console.Alert
	}
	return console.Plain
}

// shownTone returns the tone of a cell in the table of `show`.
func shownTone(row []string, column int) console.Tone {
	switch {
	case column == 0:
	case row[0] == "holder" && row[1] == nobody:
		return console.Free
	case row[0] == "holder":
		return console.Held
	case row[0] == "pinned":
		return console.Alert
	}
	return console.Plain
}
