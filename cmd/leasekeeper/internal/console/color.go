package console

import "fmt"

// The values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// ColorValues are the values of --color.
var ColorValues = []string{colorAuto, colorAlways, colorNever}

// Color is the value of --color, and the wish of the environment. It implements pflag.Value. The zero Color is auto, in an
// environment without wishes.
type Color struct {
	when  string // one of ColorValues; "" for auto
	plain bool   // whether the environment asks for no colours
}

// Obey takes the wish of the environment into account: NO_COLOR that is not empty, and TERM=dumb, ask for no colours.
// --color=always prevails over both.
func (c *Color) Obey(getenv func(string) string) {
	c.plain = getenv("NO_COLOR") != "" || getenv("TERM") == "dumb"
}

// String is part of pflag.Value.
func (c *Color) String() string {
	if c == nil || c.when == "" {
		return colorAuto
	}
	return c.when
}

// Type is part of pflag.Value.
func (c *Color) Type() string { return "when" }

// Set is part of pflag.Value.
func (c *Color) Set(text string) error {
	switch text {
	case colorAuto, colorAlways, colorNever:
		c.when = text
		return nil
	}
	return fmt.Errorf("write %s, %s or %s", colorAuto, colorAlways, colorNever)
}

// allows reports whether a stream shows colours.
func (c *Color) allows(terminal bool) bool {
	switch {
	case c == nil:
		return false
	case c.String() == colorAuto:
		return terminal && !c.plain
	}
	return c.when == colorAlways
}

// Tone is the meaning of a cell that a colour shows. Each table also says it in words.
type Tone int

// The tones.
const (
	Plain Tone = iota // no meaning
	Held              // held, healthy: green
	Free              // held by no process: faint
	Lost              // expired, lost, down: red
	Alert             // needs attention: yellow
)

// escapes begin each tone on a terminal.
var escapes = map[Tone]string{Held: "\x1b[32m", Free: "\x1b[2m", Lost: "\x1b[31m", Alert: "\x1b[33m"}

// endEscape ends a tone on a terminal.
const endEscape = "\x1b[0m"

// in returns text in a tone.
func (t Tone) in(text string) string {
	if t == Plain || text == "" {
		return text
	}
	return escapes[t] + text + endEscape
}
