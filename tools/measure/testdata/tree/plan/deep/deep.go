package deep

func one() {}
