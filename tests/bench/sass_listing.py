"""A listing as `nvdisasm -c` prints it: a loop that multiplies and copies, stores a result in few iterations, and has a loop
inside that adds up; padding after the end; and a second kernel that is unrolled."""

LISTING = """\
\t.headerflags\t@"EF_CUDA_SM90"
//--------------------- .text.looping --------------------------
\t.section\t.text.looping,"ax",@progbits
.text.looping:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   BRA `(.L_x_0) ;
.L_x_5:
        /*0020*/                   IADD3 R9, R9, 0x1, RZ ;
        /*0030*/                   BRA `(.L_x_1) ;
.L_x_0:
        /*0040*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0050*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0060*/                   HMMA.16816.F32 R12, R4, R7, R12 ;
        /*0070*/              @!P0 BRA `(.L_x_2) ;
.L_x_3:
        /*0080*/                   FADD R8, R8, R20 ;
        /*0090*/               @P2 BRA `(.L_x_3) ;
        /*00a0*/                   STG.E desc[UR4][R16.64], R8 ;
.L_x_2:
        /*00b0*/                   HFMA2.MMA R3, -RZ, RZ, 0, 0 ;
        /*00c0*/               @P3 BRA `(.L_x_4) ;
        /*00d0*/                   LDGSTS.E.BYPASS.128 [R19], desc[UR10][R12.64] ;
.L_x_4:
        /*00e0*/                   FSETP.GEU.AND P6, PT, |R32|, +INF , PT ;
        /*00f0*/              @!P6 IMAD.IADD.U32 R32, R32, 0x1, R58 ;
        /*0100*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0110*/               @P1 BRA `(.L_x_5) ;
.L_x_1:
        /*0120*/               @P4 BRA `(.L_x_0) ;
        /*0130*/                   EXIT ;
.L_x_6:
        /*0140*/                   BRA `(.L_x_6);
        /*0150*/                   NOP;
.L_x_7:
//--------------------- .text.unrolled --------------------------
.text.unrolled:
        /*0000*/                   FFMA R1, R2, R3, R1 ;
        /*0010*/                   FFMA R4, R2, R5, R4 ;
        /*0020*/                   EXIT ;
.L_x_8:
        /*0030*/                   BRA `(.L_x_8);
        /*0040*/                   NOP;
"""

# A loop that queues products of wgmma twice, the second time with a NOP and an instruction between them.
WGMMA_LISTING = """\
.text.queueing:
.L_x_0:
        /*0000*/                   UIADD3 UR4, UR4, 0x1, URZ ;
        /*0010*/                   WARPGROUP.ARRIVE ;
        /*0020*/                   UMOV UR5, 0x40000040 ;
        /*0030*/                   HGMMA.64x64x16.F32 R24, gdesc[UR4], R24 ;
        /*0040*/                   HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0 ;
        /*0050*/                   ISETP.GE.AND P0, PT, R2, UR12, PT ;
        /*0060*/                   WARPGROUP.ARRIVE ;
        /*0070*/                   HGMMA.64x64x16.F32 R56, gdesc[UR4], R56 ;
        /*0080*/                   NOP ;
        /*0090*/                   UMOV UR9, UR5 ;
        /*00a0*/                   HGMMA.64x64x16.F32 R56, gdesc[UR8], R56 ;
        /*00b0*/                   HGMMA.64x64x16.F32 R56, gdesc[UR12], R56, gsb0 ;
        /*00c0*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*00d0*/               @P0 BRA `(.L_x_0) ;
        /*00e0*/                   EXIT ;
"""
