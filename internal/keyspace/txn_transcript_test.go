package keyspace

import (
	"fmt"
	"slices"
	"strings"
)

// txnLines executes the transaction that begins at a line, and returns the index of its last line.
func (tr *conversation) txnLines(w *Writer, out *strings.Builder, lines []string, from int) int {
	req, next := tr.parseTxn(lines, from)
	res, err := w.Txn(req)
	fmt.Fprintf(out, "txn: %s\n", indented(txnText(res, err)))
	return next - 1
}

func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// parseTxn parses the lines of a transaction up to its }, and returns the index of that line:
//
//	if KEYS TARGET RESULT OPERAND    TARGET version create mod value lease, RESULT = > < !=
//	then REQUEST | else REQUEST      REQUEST put, del or get, as elsewhere
//	then txn | else txn              a nested transaction, which ends with its own }
func (tr *conversation) parseTxn(lines []string, from int) (req TxnRequest, next int) {
	for next = from; strings.TrimSpace(lines[next]) != "}"; {
		word, rest, _ := strings.Cut(strings.TrimSpace(lines[next]), " ")
		next++
		if word == "if" {
			req.Compare = append(req.Compare, parseCompare(strings.Fields(rest)))
			continue
		}
		var op TxnOp
		if rest == "txn" {
			op, next = tr.parseTxn(lines, next)
		} else {
			op = tr.parseOp(parse(rest))
		}
		switch word {
		case "then":
			req.Success = append(req.Success, op)
		case "else":
			req.Failure = append(req.Failure, op)
		default:
			tr.t.Fatalf("not of a txn: %s", word)
		}
	}
	return req, next + 1
}

func parseCompare(words []string) Compare {
	c := Compare{
		Target: CompareTarget(slices.Index([]string{"version", "create", "mod", "value", "lease"}, words[1])),
		Result: CompareResult(slices.Index([]string{"=", ">", "<", "!="}, words[2])),
	}
	c.Key, c.End = keysOf(words[0])
	if c.Target == CompareValue {
		c.Value = []byte(words[3])
	} else if _, err := fmt.Sscan(words[3], &c.Number); err != nil {
		panic(err)
	}
	return c
}

func (tr *conversation) parseOp(args arguments) TxnOp {
	key, end := keysOf(args.word(1))
	switch args.word(0) {
	case "put":
		return PutRequest{
			Key: key, Value: args.value(2), Lease: args.number("lease"), PrevKV: args.has("prev"),
			IgnoreValue: args.has("ignore-value"), IgnoreLease: args.has("ignore-lease"),
		}
	case "del":
		return DeleteRequest{Key: key, End: end, PrevKV: args.has("prev")}
	case "get":
		return RangeRequest{Key: key, End: end, Revision: args.number("rev"), CountOnly: args.has("count-only")}
	}
	return nil
}
