package kv

// bankSize is how many holders fit into one word of the directory.
const bankSize = 64

// directory says which holders have a block together with all blocks before it. Every 64 holders have a bank of their own, so that a set of holders is
// one word inside the map and a probe touches nothing else. It also keeps the account of what all trees take.
type directory struct {
	banks   []map[Key]uint64 // never an empty set
	entries int              // keys in all banks

	slots      int // in the nodes of all trees, unused ones included
	elsewheres int // copies beside those in nodes, in all trees
}

// has reports whether h stands at key.
func (d *directory) has(key Key, h Holder) bool {
	bank, bit := int(h/bankSize), uint64(1)<<(h%bankSize)
	return bank < len(d.banks) && d.banks[bank][key]&bit != 0
}

// add puts h at key and reports whether it was not there before.
func (d *directory) add(key Key, h Holder) bool {
	bank, bit := int(h/bankSize), uint64(1)<<(h%bankSize)
	for len(d.banks) <= bank {
		d.banks = append(d.banks, map[Key]uint64{})
	}
	set := d.banks[bank][key]
	if set&bit != 0 {
		return false
	}
	if set == 0 {
		d.entries++
	}
	d.banks[bank][key] = set | bit
	return true
}

// remove takes h, which must be there, from key.
func (d *directory) remove(key Key, h Holder) {
	bank, bit := int(h/bankSize), uint64(1)<<(h%bankSize)
	if set := d.banks[bank][key] &^ bit; set != 0 {
		d.banks[bank][key] = set
		return
	}
	delete(d.banks[bank], key)
	d.entries--
	if len(d.banks[bank]) == 0 {
		d.banks[bank] = map[Key]uint64{} // a map keeps its room
	}
}
