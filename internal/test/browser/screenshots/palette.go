package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// mostColours is how many colours a small picture has. Pages have few, and more shades of them at the edges of letters.
const mostColours = 256

// small returns a picture with its most frequent colours only. Others become the nearest of them. It takes about a third of the
// bytes.
func small(encoded []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	area := full.Bounds()
	count := make(map[color.RGBA]int)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[at(full, x, y)]++
		}
	}
	// order: sorted by frequency, and then by the colour, so that the same picture has the same bytes
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	palette := make(color.Palette, 0, mostColours)
	for _, c := range all[:min(mostColours, len(all))] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(area, palette)
	nearest := make(map[color.RGBA]uint8, len(all))
	for _, c := range all {
		nearest[c] = uint8(palette.Index(c))
	}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			few.SetColorIndex(x, y, nearest[at(full, x, y)])
		}
	}
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&b, few)
	return b.Bytes(), err
}

func at(i image.Image, x, y int) color.RGBA { return color.RGBAModel.Convert(i.At(x, y)).(color.RGBA) }
