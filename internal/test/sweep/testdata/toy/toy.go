// Package toy has guards for the self-test of the sweep.
package toy

// Share divides a sum among heads.
func Share(sum, heads int) int {
	if heads == 0 {
		return 0
	}
	if sum == 0 { // the division gives the same
		return 0
	}
	return sum / heads
}

// Within says whether n lies between low and high.
func Within(n, low, high int) bool { return n >= low && n <= high }

// Halve halves n until it is odd. Without its guard it never ends for 0.
func Halve(n int) int {
	for {
		switch {
		case n == 0, n%2 != 0:
			return n
		}
		n /= 2
	}
}

// Unused is called by no test.
func Unused(n int) bool {
	if n < 0 {
		return false
	}
	return true
}

// Third returns the third byte.
func Third(text string) byte {
	if len(text) < 3 || text == "" {
		panic("toy: broken invariant: no third byte")
	}
	return text[2]
}
