package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// lookAtSize is how often a live view compares the size of its window.
	lookAtSize = 100 * time.Millisecond
	// keyPause is the time between two looks for a key, besides that in which a read waits for one.
	keyPause = 20 * time.Millisecond
	// pageLimit bounds how many bytes of a page a live view keeps.
	pageLimit = 1 << 20
)

// Escape sequences of a live view.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// A View is a live view: a page in the terminal that is drawn again in place.
type View struct {
	Title string // the first line, such as the command
	// Draw writes the page to w, which has the width of the window. lines is how many lines of it are shown. The view calls it
	// from one goroutine. An error ends the view.
	Draw func(ctx context.Context, w io.Writer, lines int) error
	// Every is the longest time between two calls of Draw, and AtLeast the shortest one.
	Every, AtLeast time.Duration
	// Changed has an element when the page may have changed; nil if only time changes it.
	Changed <-chan struct{}
}

// CanShow reports whether a live view can be shown on out.
func CanShow(out io.Writer) bool { return streamOf(out).IsTerminal() }

// Show shows the view on the terminal out until q or Ctrl-C is typed, ctx ends, or Draw fails. It restores the terminal
// before it returns. in is the input of the terminal; if it is another file, the view reads no keys.
func (v *View) Show(ctx context.Context, out io.Writer, in io.Reader) (err error) {
	s := streamOf(out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := readKeys(ctx, in, cancel)
	defer keys.end()
	if _, err := io.WriteString(s, enterScreen); err != nil {
		return err
	}
	defer func() {
		if _, leaving := io.WriteString(s, leaveScreen); err == nil {
			err = leaving
		}
	}()
	return v.loop(ctx, s)
}

// loop draws the page when it may have changed, and shows it again when the size of the window changes.
func (v *View) loop(ctx context.Context, s *Stream) error {
	look := time.NewTicker(lookAtSize)
	defer look.Stop()
	p := &page{stream: s}
	var drawn time.Time
	stale := true
	for {
		resized := p.resize()
		since := time.Since(drawn)
		if resized || since >= v.Every || stale && since >= v.AtLeast {
			if err := v.redraw(ctx, p); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			drawn, stale = time.Now(), false
		}
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-v.Changed:
			if stale = true; !open {
				v.Changed = nil
			}
		case <-look.C:
		}
	}
}

// redraw draws the page and shows it.
func (v *View) redraw(ctx context.Context, p *page) error {
	var text bytes.Buffer
	w := &Stream{to: &bounded{&text}, color: p.stream.colorHere(), columns: p.columns}
	if err := v.Draw(ctx, w, p.lines-1); err != nil {
		return err
	}
	title := fmt.Sprintf("%s   %s   q ends", v.Title, time.Now().Format(time.TimeOnly))
	return p.show(backend.Printable(title), text.String())
}

// colorHere returns a Color for a page of a live view, which allows what the stream itself allows.
func (s *Stream) colorHere() *Color {
	if s.paints() {
		return &Color{when: colorAlways}
	}
	return &Color{when: colorNever}
}

// page is what the window shows.
type page struct {
	stream         *Stream
	columns, lines int
}

// resize reads the size of the window, and reports whether it has changed.
func (p *page) resize() bool {
	columns, lines, err := term.GetSize(int(p.stream.terminal.Fd()))
	if err != nil || columns < 1 || lines < 1 {
		columns, lines = 80, 24
	}
	changed := columns != p.columns || lines != p.lines
	p.columns, p.lines = columns, lines
	return changed
}

// show replaces the content of the window in one write. Lines that are too long are cut, and lines that do not fit are
// counted.
func (p *page) show(title, text string) error {
	lines := append([]string{title}, strings.Split(strings.TrimRight(text, "\n"), "\n")...)
	if len(lines) > p.lines {
		hidden := len(lines) - p.lines + 1
		lines = append(lines[:p.lines-1], ellipsis+" "+Plural(hidden, "more line", "more lines"))
	}
	var frame strings.Builder
	frame.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			frame.WriteString("\r\n")
		}
		// Cleared before the text: behind a line that fills the window, the cursor is on its last letter.
		frame.WriteString(clearLine + cutPainted(line, p.columns))
	}
	if len(lines) < p.lines {
		frame.WriteString("\r\n" + clearBelow)
	}
	_, err := io.WriteString(p.stream, frame.String())
	return err
}

// cutPainted is cut for text with tones.
func cutPainted(line string, most int) string {
	if !strings.Contains(line, "\x1b") {
		return cut(line, most)
	}
	var kept strings.Builder
	columns := 0
	for rest := line; rest != ""; {
		escape := strings.Index(rest, "\x1b[")
		text := rest
		if escape >= 0 {
			text = rest[:escape]
		}
		if columns+columnsOf(text) > most {
			return kept.String() + cut(text, most-columns) + endEscape
		}
		kept.WriteString(text)
		columns += columnsOf(text)
		if escape < 0 {
			break
		}
		end := escape + strings.IndexByte(rest[escape:], 'm') + 1
		kept.WriteString(rest[escape:end])
		rest = rest[end:]
	}
	return kept.String()
}

// bounded keeps the first pageLimit bytes that are written to it.
type bounded struct{ to *bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.to.Write(p[:min(len(p), max(0, pageLimit-b.to.Len()))])
	return len(p), nil
}

// keys is the goroutine that reads keys for a live view.
type keys struct {
	done    chan struct{} // closed when the goroutine has ended
	stop    context.CancelFunc
	restore func() // makes the terminal as it was
}

// readKeys calls quit when q, Ctrl-C or Ctrl-D is typed, until ctx ends. The caller calls end.
func readKeys(ctx context.Context, in io.Reader, quit context.CancelFunc) *keys {
	k := &keys{done: make(chan struct{}), stop: quit, restore: func() {}}
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		close(k.done)
		return k
	}
	restore, err := prepareKeys(f)
	if err != nil {
		close(k.done)
		return k
	}
	k.restore = restore
	go func() {
		defer close(k.done)
		typed := make([]byte, 64)
		for ctx.Err() == nil {
			n, err := f.Read(typed) // returns after a short time without a key
			if bytes.ContainsAny(typed[:n], "qQ\x03\x04") {
				quit()
			}
			if err != nil && err != io.EOF {
				return // the terminal is gone
			}
			if n == 0 { // a terminal that was hung up may answer at once, each time
				pause := time.NewTimer(keyPause)
				select {
				case <-pause.C:
				case <-ctx.Done():
					pause.Stop()
				}
			}
		}
	}()
	return k
}

// end waits for the goroutine and restores the terminal.
func (k *keys) end() {
	k.stop()
	<-k.done
	k.restore()
}
